"""What the contract of tasks trains: a made-up Flickr8k."""


def arguments(request):
    request.getfixturevalue("tiny_flickr8k")
    return ["--hidden", "8", "--batch-size", "48"]
