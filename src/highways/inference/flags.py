"""The compiler flags of the C++ kernels. They help determine the numbers that the kernels compute."""

COMMON = (
    *("-std=c++17", "-O3", "-march=native", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"),
    *("-shared", "-fPIC", "-pthread"),
)
FLAGS = {"native": COMMON, "mixed": (*COMMON, "-DHIGHWAYS_MIXED")}
