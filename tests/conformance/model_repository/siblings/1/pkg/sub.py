NUMBER = 1


class Sub:
    pass
