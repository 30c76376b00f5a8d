"""The picture of a benchmark run: GFLOP/s of every contender by depth."""

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

NAMES = {
    "peak": ("ceiling: multiply-adds in registers", "#666666"),
    "hot": ("torch: one layer's products", "#999999"),
    "streaming": ("torch: the network's products", "#cccccc"),
    "native": ("native", "#0072b2"),
    "mixed": ("mixed (bf16 products)", "#009e73"),
    "pcx": ("PCX 0.6.3", "#e69f00"),
    "fabricpc": ("FabricPC 0.6.0 (Euler, no RMSNorm)", "#f0e442"),
    "batched": ("batched (torch)", "#56b4e9"),
    "reference": ("reference (autograd)", "#d55e00"),
}


def draw(results: dict[str, Any], path: Path) -> None:
    """One group of bars per depth."""
    groups = {row["depth"]: dict(row["gflops"]) for row in results["kernels"]}
    for peer in ("pcx", "fabricpc"):
        for row in results[peer] or []:
            groups[row["depth"]][peer] = groups[row["depth"]]["native"] / row["ratio"]
    shown = [name for name in NAMES if any(name in group for group in groups.values())]
    figure = Figure(figsize=(7.2, 3.6), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(shown)
    for position, name in enumerate(shown):
        label, colour = NAMES[name]
        places = [
            i + (position - (len(shown) - 1) / 2) * width
            for i, group in enumerate(groups.values())
            if name in group
        ]
        bars = axes.bar(places, [g[name] for g in groups.values() if name in g], width, label=label, color=colour)
        axes.bar_label(bars, fmt="%.0f", fontsize=7)
    axes.set_xticks(range(len(groups)), [f"{depth} layers" for depth in groups])
    axes.set_ylabel("GFLOP/s of the hidden products")
    axes.set_title(
        f"E-step with highways and Adam, width 128, batch 128, one thread\n{results['machine']['device']}",
        fontsize=9,
    )
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, fontsize=8)
    figure.savefig(path, format="png", dpi=150, metadata={"Software": None})
