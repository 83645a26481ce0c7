"""What the contract of tasks trains: the births of two years, which come with the program."""


def arguments(request):
    del request
    sizes = ("--hidden", "8", "--batch-size", "8", "--windows", "32", "--horizon", "7")
    return [*sizes, "--validation-windows", "6"]
