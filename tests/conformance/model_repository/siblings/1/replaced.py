import sys


class Instead:
    answer = 42


sys.modules[__name__] = Instead()
