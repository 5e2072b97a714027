# MuJoCo's classes and functions live in compiled modules without stubs.
from typing import Any

def __getattr__(name: str) -> Any: ...
