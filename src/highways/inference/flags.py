"""How the native kernel is compiled: part of what determines its numbers."""

FLAGS = (
    *("-std=c++17", "-O3", "-march=native", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"),
    *("-shared", "-fPIC", "-pthread"),
)
