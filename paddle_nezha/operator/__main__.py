"""Compiles the operator into the package, for a wheel to carry: python -m paddle_nezha.operator"""

from paddle_nezha.operator.building import prebuild

if __name__ == "__main__":
    print(prebuild())
