"""Where and how a run is computed. None of it is in a spec; what affects the numbers is in the record."""

import platform
import re
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from highways.inference import choose_kernel
from highways.specs.fields import SpecError


@dataclass(frozen=True)
class Machine:
    """data_dir: the data's folder (None: the usual places); kernel: of the E-step; quiet: no progress."""

    data_dir: str | None = None
    device: str = "cpu"
    threads: int = 1
    kernel: str = "auto"
    quiet: bool = False

    def prepared(self, dtype: str) -> "Machine":
        """Set the process's threads and denormal flushing; returns the machine with its kernel chosen.

        Raises SpecError where the kernel or the device cannot be used.
        """
        if not re.fullmatch(r"cpu|cuda(:\d+)?", self.device):
            raise SpecError(f"--device: {self.device!r} is not allowed; it takes cpu, cuda or cuda:N")
        try:
            torch.empty(0, device=self.device)
        except (AssertionError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise SpecError(
                f"--device: {self.device!r} cannot be used ({reason}); it takes cpu, cuda or cuda:N"
            ) from None
        torch.set_num_threads(self.threads)
        torch.set_flush_denormal(True)
        kernel = choose_kernel(self.kernel, torch.device(self.device), getattr(torch, dtype))
        return replace(self, kernel=kernel)

    def device_name(self) -> str:
        """The model of the processor or the GPU."""
        if torch.device(self.device).type == "cuda":
            return torch.cuda.get_device_name(self.device)
        return _cpu_name() if self.device == "cpu" else self.device

    def processor(self) -> str:
        """What determines the last bits: a processor's maker and instruction sets, or a GPU's model.

        torch, its libraries and the native kernel choose their code by the instruction sets.
        """
        if torch.device(self.device).type == "cuda":
            return torch.cuda.get_device_name(self.device)
        sets = [flag for flag in _cpu_says("flags", "Features").split() if _DECIDES.match(flag)]
        maker = _cpu_says("vendor_id", "CPU implementer") or platform.machine()
        return f"{maker} {torch.backends.cpu.get_cpu_capability()} ({' '.join(sorted(sets))})"


_DECIDES = re.compile(r"avx|fma|amx|asimd|sve|neon")


def _cpu_name() -> str:
    capability, name = torch.backends.cpu.get_cpu_capability(), _cpu_says("model name")
    return f"{name} ({capability})" if name else capability


def _cpu_says(*keys: str) -> str:
    """The value of the first line of /proc/cpuinfo that starts with one of these keys; "" where none does."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(keys)), "")
