"""What the contract of tasks trains: a few sentences of the embedded novel."""


def arguments(request):
    text = request.getfixturevalue("tiny_text")
    sizes = ("--hidden", "8", "--batch-size", "4", "--unroll", "10", "--vocabulary-limit", "200")
    return ["--corpus", str(text), *sizes]
