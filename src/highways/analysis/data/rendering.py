"""A table and its four files: CSV for machines, Markdown, HTML and LaTeX for readers."""

import html
import re
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from highways.files import write_text

_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "{": r"\{",
        "}": r"\}",
        "$": r"\$",
        "&": r"\&",
        "#": r"\#",
        "%": r"\%",
        "_": r"\_",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "±": r"$\pm$",
        "×": r"$\times$",
        "−": "$-$",
        "≠": r"$\neq$",
        "†": r"$\dagger$",
        "‡": r"$\ddagger$",
        "§": r"\S{}",
        "ᵀ": r"$^\top$",
        "α": r"$\alpha$",
        "λ": r"$\lambda$",
        "μ": r"$\mu$",
        "σ": r"$\sigma$",
        "φ": r"$\varphi$",
        "ε": r"$\varepsilon$",
        "ℓ": r"$\ell$",
        "√": r"$\surd$",
        "—": "---",
        "–": "--",
    }
)


@dataclass(frozen=True, eq=False)
class Table:
    """A table: `frame` is what readers see (text; its index heads the rows), `data` the same in long form."""

    name: str
    caption: str
    frame: pd.DataFrame
    data: pd.DataFrame
    notes: tuple[str, ...]


def write(table: Table, folder: Path) -> None:
    """Write `<name>.csv`, `.md`, `.html` and `.tex`, each whole or not at all."""
    write_text(folder / f"{table.name}.csv", table.data.to_csv(index=False, lineterminator="\n"))
    write_text(folder / f"{table.name}.md", to_markdown(table))
    write_text(folder / f"{table.name}.html", to_html(table))
    write_text(folder / f"{table.name}.tex", to_latex(table))


def to_markdown(table: Table) -> str:
    notes = "\n".join(f"- {_markdown(note)}" for note in table.notes)
    return f"**{_markdown(table.caption)}**\n\n{frame_to_markdown(table.frame)}\n\n{notes}\n"


def frame_to_markdown(frame: pd.DataFrame) -> str:
    """The rows of a frame as Markdown, without a caption and notes."""
    cells = frame.reset_index().astype(str).map(_markdown_cell).rename(columns=_markdown_cell)
    return str(cells.to_markdown(index=False, tablefmt="pipe", disable_numparse=True))


def to_html(table: Table) -> str:
    """An HTML fragment in ASCII, so that it reads the same wherever it is pasted."""
    heads = "".join(f'<th scope="col">{_html(name)}</th>' for name in [*_levels(table), *table.frame.columns])
    lines = [f"<table>\n<caption>{_html(table.caption)}</caption>\n<thead>\n<tr>{heads}</tr>\n</thead>\n<tbody>"]
    for keys, values in _rows(table):
        scopes = "".join(f'<th scope="row">{_html(key)}</th>' for key in keys)
        lines.append(f"<tr>{scopes}{''.join(f'<td>{_html(value)}</td>' for value in values)}</tr>")
    lines.append('</tbody>\n</table>\n<ul class="notes">')
    lines += [f"<li>{_html(note)}</li>" for note in table.notes]
    return "\n".join([*lines, "</ul>"]) + "\n"


def to_latex(table: Table) -> str:
    """A table environment; it needs the package booktabs."""
    levels = _levels(table)
    columns = "l" * len(levels) + "c" * len(table.frame.columns)
    lines = [
        r"\begin{table}[t]",
        r"  \centering\scriptsize\setlength{\tabcolsep}{3pt}",
        rf"  \caption{{{_latex(table.caption)}}}",
        rf"  \label{{tab:highways-{table.name}}}",
        rf"  \begin{{tabular}}{{{columns}}}",
        r"    \toprule",
        f"    {_latex_row([*levels, *table.frame.columns])}",
        r"    \midrule",
        *(f"    {_latex_row([*keys, *values])}" for keys, values in _rows(table)),
        r"    \bottomrule",
        r"  \end{tabular}",
        r"  \par\smallskip\raggedright",
        *(rf"  {_latex(note)}\par" for note in table.notes),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _levels(table: Table) -> list[str]:
    return [str(name) for name in table.frame.index.names]


def _rows(table: Table) -> list[tuple[list[str], list[str]]]:
    """The row headers and the cells of each row."""
    count = table.frame.index.nlevels
    rows = table.frame.reset_index().astype(str).to_numpy().tolist()
    return [(row[:count], row[count:]) for row in rows]


def _markdown(text: str) -> str:
    """Escape HTML tags and dollar signs; backticks still mark code."""
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", text).replace("$", r"\$")


def _markdown_cell(text: str) -> str:
    """Escape also backticks, asterisks, links, and the bar that would end the cell."""
    return re.sub(r"[`*|]|(?<=\])\(", r"\\\g<0>", _markdown(str(text)))


def _html(text: str) -> str:
    return html.escape(str(text)).encode("ascii", "xmlcharrefreplace").decode()


def _latex(text: str) -> str:
    return str(text).translate(_LATEX)


def _latex_row(values: list[str]) -> str:
    return " & ".join(_latex(value) for value in values) + r" \\"
