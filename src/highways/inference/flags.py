"""How the kernels in C++ are compiled: part of what determines their numbers."""

COMMON = (
    *("-std=c++17", "-O3", "-march=native", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"),
    *("-shared", "-fPIC", "-pthread"),
)
FLAGS = {"native": COMMON, "mixed": (*COMMON, "-DHIGHWAYS_MIXED")}
