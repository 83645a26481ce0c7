"""The page in a real browser: Debian's chromium, driven by Playwright.

`make test-browser` installs both and runs these; elsewhere they are skipped, and say why.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bayesrnn.cli.main import main
from bayesrnn.tasks import TASKS
from bayesrnn.tasks.lm.generate import prompt_tokens

pytestmark = pytest.mark.browser

COMMON = ("--epochs", "1", "--device", "cpu", "--threads", "1", "--no-calibrate")
FORECAST = ("--hidden", "8", "--windows", "32", "--horizon", "7", "--validation-windows", "6")
WIDE, NARROW = 1280, 390
TITLES = ["Text", "Digits", "Forecast", "Sentiment", "Training"]


def missing(reason):
    """Skip, but not where `make test-browser` has installed what is missing."""
    if os.environ.get("BAYESRNN_BROWSER") == "required":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def browser():
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if path is None:
        missing("there is no chromium; make test-browser installs it")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("there is no playwright; make test-browser installs it")
    with sync_playwright() as playwright:
        # The sandbox needs a user other than root, as in a container.
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=path, args=options)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def folder(browser, texts, tmp_path_factory) -> Path:
    """A folder with a tiny run of all tasks but captions, whose image network is an extra."""
    made = tmp_path_factory.mktemp("all")
    for method in ("plain", "bbb"):
        shutil.copytree(texts / method, made / f"a-{method}", symlinks=True)
    ratings = made / "ratings.csv"
    words = ("bad", "fair", "good")
    rows = [f"film number {n} was {words[n % 3]} indeed,{n % 3 + 0.5}" for n in range(60)]
    ratings.write_text("\n".join(["text,rating", *rows]) + "\n")
    own = {
        "mnist": ("--images", "digits", "--hidden", "8", "--batch-size", "200"),
        "forecast": (*FORECAST, "--batch-size", "8"),
        "sentiment": ("--data", str(ratings), "--hidden", "8", "--batch-size", "16"),
    }
    for letter, (task, options) in zip("bcd", own.items(), strict=True):
        out = str(made / f"{letter}-{task}")
        arguments = ["train", task, "--method", "bbb", *options, *COMMON, "--out", out]
        assert main(arguments) == 0
    return made


class Server:
    """The program on a port of its own."""

    def __init__(self, *paths, port=0):
        command = [sys.executable, "-m", "bayesrnn", "serve", *map(str, paths)]
        self.process = subprocess.Popen(
            [*command, "--port", str(port), "--threads", "1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        line = self.process.stdout.readline()
        found = re.search(r"http://\S+", line)
        if found is None:
            self.kill()
            pytest.fail(f"the server did not start; it said {line!r}")
        self.address = found[0]

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


@pytest.fixture(scope="module")
def server(folder):
    made = Server(folder)
    yield made
    made.kill()


@pytest.fixture
def opened(browser):
    """A function that opens a page; nothing may go wrong on it, or be asked of another host."""
    contexts, asked, wrong = [], [], []

    def open_page(address, title="Text", width=WIDE, theme="light"):
        context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme=theme, reduced_motion="reduce"
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("request", lambda request: asked.append((request.url, address)))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(f"{address}#{title}")
        page.get_by_role("tab", name=title, selected=True).wait_for()
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert [url for url, address in asked if not url.startswith(address)] == []
    assert wrong == []


def words_of(page, column=0):
    """The words of a column, once it has those of the text that is there."""
    line = page.locator(".column").nth(column).locator(".words")
    line.wait_for()
    return line.locator(".word:not(.after)")


def settled(page):
    """Wait until every column that is shown has its answer."""
    page.wait_for_function(
        "() => !document.querySelector('section:not([hidden]) > * .column[aria-busy=true]')"
    )


def answer_to(page, **given):
    """A context that ends with the first answer to a question with these options, and no other."""

    def fits(found):
        asked = json.loads(found.request.post_data or "{}")
        return found.url.endswith("/read") and found.ok and given.items() <= asked.items()

    return page.expect_response(fits)


def type_text(page, text):
    """Type over the text and wait for the answers to it."""
    with answer_to(page, text=text):
        page.get_by_role("textbox").first.fill(text)
    settled(page)


def marks(page, column=0):
    """How strongly each word is marked as epistemic."""
    return words_of(page, column).evaluate_all(
        "(words) => words.map((word) => Number(word.style.getPropertyValue('--e')))"
    )


def test_what_is_typed_stays_text(opened, server):
    page = opened(server.address)
    text = 'a <img src=x onerror="window.harmed = 1"> <script>window.harmed = 1</script> truth'
    type_text(page, text)
    shown = "".join(words_of(page).all_text_contents())
    assert "<img" in re.sub(r"\s", "", shown)
    assert page.locator("main img, main script").count() == 0
    assert page.evaluate("window.harmed") is None


def test_words_are_the_tokens_of_both_runs_side_by_side(opened, server, folder):
    page = opened(server.address)
    text = "It is a truth universally acknowledged, that zebras read."
    type_text(page, text)
    for column, name in enumerate(("a-bbb", "a-plain")):
        run = TASKS["lm"].tab().open(folder / name)
        assert words_of(page, column).all_text_contents() == prompt_tokens(text, run.tokeniser)
    assert max(marks(page, 0)) > 0
    assert max(marks(page, 1)) == 0
    words_of(page).nth(2).hover()
    assert page.locator(".word.chosen").all_text_contents() == ["a", "a"]
    tables = page.locator(".candidates table")
    assert [tables.nth(n).locator("tbody tr").count() for n in range(2)] == [4, 1]


def test_sliders_change_what_is_marked(opened, server):
    page = opened(server.address)
    type_text(page, "it is a truth universally acknowledged")
    before = marks(page)
    colours = "(words) => words.map((word) => getComputedStyle(word).borderBottomWidth)"
    widths = words_of(page).evaluate_all(colours)
    noise = page.get_by_label("noise of draws")
    with answer_to(page, noise=10):
        noise.press("End")
    settled(page)
    assert sum(marks(page)) > sum(before)
    assert words_of(page).evaluate_all(colours) != widths
    with answer_to(page, noise=10, samples=1):
        page.get_by_label("draws", exact=True).press("Home")
    settled(page)
    assert sum(marks(page)) == 0  # one draw does not disagree with itself


def test_the_text_goes_on(opened, server):
    page = opened(server.address)
    type_text(page, "it is a truth")
    with page.expect_response(lambda found: found.url.endswith("/continue") and found.ok):
        page.get_by_role("button", name="Continue the text").first.click()
    page.wait_for_function("() => document.querySelector('textarea').value.length > 20")
    assert page.locator("textarea").input_value().lower().startswith("it is a truth")


def test_by_the_keyboard_alone(opened, server):
    page = opened(server.address)
    words_of(page)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Text"
    page.keyboard.press("ArrowRight")
    assert page.get_by_role("tab", name="Digits").get_attribute("aria-selected") == "true"
    page.keyboard.press("Tab")
    for key in (" ", *["ArrowDown"] * 15, *["ArrowRight"] * 6, " "):
        page.keyboard.press(key)
    page.locator("#panel-1 .big").first.wait_for()
    assert re.match(r"\d, with \d+%", page.locator("#panel-1 .big").first.text_content())
    page.keyboard.press("Delete")
    assert page.locator("#panel-1 .big").count() == 0
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("ArrowLeft")
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.classList.contains('word')"):
            break
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.place") == "1"
    said = page.locator(".candidates").first.text_content()
    assert page.evaluate("document.activeElement.textContent") in said


CONTRAST = """() => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => v / 255)
      .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const page = rgb(getComputedStyle(document.body).backgroundColor);
  const shown = [...document.querySelectorAll("main *")].filter(
    (one) => one.checkVisibility() && [...one.childNodes].some((node) => node.nodeType === 3
      && node.textContent.trim()) && !one.closest("svg, canvas, :disabled"));
  return shown.map((one) => {
    const pair = [light(rgb(getComputedStyle(one).color)), light(page)].sort((a, b) => b - a);
    return [(pair[0] + 0.05) / (pair[1] + 0.05), one.className];
  });
}"""


def test_all_tabs_can_be_read_in_both_themes_and_no_width_is_too_narrow(opened, server):
    page, seen = opened(server.address), set()
    for title in TITLES:
        page.get_by_role("tab", name=title).click()
        settled(page)
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            for width in (WIDE, NARROW):
                page.set_viewport_size({"width": width, "height": 800})
                least, where = min(page.evaluate(CONTRAST))
                assert least > 4.5, (title, theme, where)
                assert page.evaluate("document.documentElement.scrollWidth") <= width, title
            seen.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(seen) == 2


@pytest.mark.parametrize(("width", "beside"), [(WIDE, True), (NARROW, False)])
def test_columns_stand_side_by_side_where_there_is_room(opened, server, width, beside):
    page = opened(server.address, width=width)
    words_of(page)
    first, second = (page.locator(".column").nth(n).bounding_box() for n in range(2))
    assert (first["y"] == second["y"]) == beside


def test_the_server_may_die_and_come_back_while_the_page_is_open(opened, folder):
    server = Server(folder / "a-bbb")
    try:
        page = opened(server.address)
        type_text(page, "it is a truth")
        server.kill()
        page.get_by_role("textbox").first.fill("it is a truth that was kept")
        page.get_by_text("The server does not answer").first.wait_for()
        assert page.locator("textarea").input_value() == "it is a truth that was kept"
        port = int(server.address.rstrip("/").rpartition(":")[2])
        server = Server(folder / "a-bbb", port=port)
        type_text(page, "it is a truth again")
        assert len(words_of(page).all()) == 5
    finally:
        server.kill()


def test_a_file_that_is_too_large_is_refused_in_words(opened, server, tmp_path):
    page = opened(server.address, "Forecast")
    large = tmp_path / "large.csv"
    large.write_bytes(b"x" * 20_000_001)
    page.locator("#panel-2 input[type=file]").set_input_files(large)
    page.get_by_text("large.csv has 20.0 MB; at most 20 MB are taken").wait_for()
    refused = page.evaluate(
        """async () => {
          const headers = { "Content-Type": "application/octet-stream" };
          const body = new Uint8Array(20000001);
          const found = await fetch("/api/runs/3/fan-of-file", { method: "POST", headers, body })
            .then((answer) => answer.status, () => "cut off");
          return found;
        }"""
    )
    assert refused in (413, "cut off")


def test_no_other_host_can_be_asked_and_no_script_put_in(opened, server):
    page = opened(server.address)
    assert page.evaluate("fetch('https://example.org/').then(() => 1, () => 'refused')") == (
        "refused"
    )
    harmed = page.evaluate(
        """async () => {
          const script = document.createElement("script");
          try { script.textContent = "window.harmed = 1"; document.head.append(script); } catch {}
          try { document.body.innerHTML = "<b>"; } catch (error) { return error.name; }
          return window.harmed;
        }"""
    )
    assert harmed == "TypeError"
    assert page.evaluate("window.harmed") is None


def test_a_fan_is_drawn_and_strange_values_are_marked(opened, server, tmp_path):
    page = opened(server.address, "Forecast")
    page.locator("#panel-2 .band-95").first.wait_for()
    assert page.locator("#panel-2 svg .line.naive").count() == 1
    assert page.locator("#panel-2 svg .band-model").count() > 0
    rows = [f"2020-01-{day:02},{100 + 10 * (day % 7)}" for day in range(1, 32)]
    rows[27] = "2020-01-28,9000"
    table = tmp_path / "own.csv"
    table.write_text("\n".join(["date,sales", *rows]) + "\n")
    page.locator("#panel-2 input[type=file]").set_input_files(table)
    page.get_by_text("own.csv").first.wait_for()
    page.locator("#panel-2 figcaption", has_text="sales").wait_for()
    page.get_by_role("button", name="Mark strange values").click()
    page.locator("#panel-2 svg .anomaly").first.wait_for()
    assert "2020-01-28" in page.locator("#panel-2 .column").first.text_content()


def test_a_text_is_rated_with_the_words_that_moved_it(opened, server):
    page = opened(server.address, "Sentiment")
    page.locator("#panel-3 .big").wait_for()
    assert float(page.locator("#panel-3 .big").text_content()) > -100
    assert page.locator("#panel-3 tbody tr").count() == 8


def test_a_training_is_watched(opened, texts, tmp_path):
    run = shutil.copytree(texts / "bbb", tmp_path / "run", symlinks=True)
    server = Server(run)
    try:
        page = opened(server.address, "Training")
        page.get_by_text(re.compile("1 of 1 epochs")).wait_for()
        last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
        with (run / "metrics.jsonl").open("a") as log:
            log.write(json.dumps({**last, "epoch": 2, "step": last["step"] * 2}) + "\n")
        page.get_by_text(re.compile("2 of 1 epochs")).wait_for()
        page.get_by_role("button", name="Examine the last checkpoint").click()
        page.get_by_text("Nats a prediction").first.wait_for()
    finally:
        server.kill()
