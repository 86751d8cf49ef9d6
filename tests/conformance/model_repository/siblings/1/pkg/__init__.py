from .sub import NUMBER as NUMBER
