"""What the contract of tasks trains: the digits that come with scikit-learn."""


def arguments(request):
    del request
    return ["--images", "digits", "--hidden", "8", "--batch-size", "200"]
