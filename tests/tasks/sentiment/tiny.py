"""What the contract of tasks trains: short texts whose rating depends on one word."""


def arguments(request):
    table = request.getfixturevalue("tmp_path") / "ratings.csv"
    words = ("bad", "fair", "good")
    rows = [f"the film number {n} was {words[n % 3]} indeed,{n % 3 + 0.5}" for n in range(60)]
    table.write_text("\n".join(["text,rating", *rows]) + "\n")
    return ["--data", str(table), "--hidden", "8", "--batch-size", "16"]
