"""What the contract of tasks trains: a square wave."""


def arguments(request):
    del request
    return ["--wave", "square", "--hidden", "4"]
