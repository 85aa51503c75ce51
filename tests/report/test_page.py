"""The page in a real browser: it renders, filters, explains, and takes nothing for markup."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from aoserial.report import Matrix, page
from aoserial.report.matrix import Reader, Reading, Row

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome", "chrome-headless-shell")
CHROMIUM = next((found for name in NAMES if (found := shutil.which(name))), None)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason=f"NO BROWSER: none of {NAMES} is here")
EVIL = "<img src=x onerror=\"document.title='taken'\"></script><b>bold</b>"
# what a person would do, and what is then on the page
VISIT = """
<script>
const shown = () => document.querySelectorAll("#grid .cell").length;
const choose = (id, value) => {
  const select = document.getElementById(id);
  select.value = value;
  select.dispatchEvent(new Event("change"));
};
const told = { all: shown(), title: document.title, images: document.images.length };
told.colours = ["equal", "different", "refused", "crashed"].map(
  (name) => getComputedStyle(document.querySelector(".cell." + name)).backgroundColor);
told.dark = getComputedStyle(document.body).backgroundColor;
document.querySelector(".cell.crashed").click();
told.panel = document.getElementById("panel").innerText;
choose("type", "acme.A@1");
told.of_type = shown();
told.counts = document.querySelector("#by-release tbody tr:last-child").innerText;
choose("type", "");
choose("outcome", "refused");
told.refused = shown();
choose("outcome", "");
choose("family", "acme.B");
told.of_family = shown();
told.types = [...document.getElementById("type").options].map((option) => option.value);
const result = document.createElement("pre");
result.id = "told";
result.textContent = JSON.stringify(told);
document.body.append(result);
</script>
"""


def reader(label: str) -> Reader:
    return Reader(label=label, package="x", version="1", torch="2", python="3")


def row(writer: str, kind: str, *readings: Reading) -> Row:
    return Row(
        writer=writer, case=f"case of {writer}", file="model.pt", types=(f"{kind}@1",),
        family=kind, readings=readings,
    )  # fmt: skip


EQUAL = Reading(outcome="equal")
MATRIX = Matrix(
    readers=(reader("this checkout"), reader(EVIL)),
    rows=(
        row("acme-1.0", "acme.A", EQUAL, Reading(outcome="refused", reason="x")),
        row("acme-1.1", "acme.A", Reading(outcome="equal", told="isa=avx2"), EQUAL),
        row(
            EVIL,
            "acme.B",
            Reading(outcome="different", reason="w"),
            Reading(outcome="crashed", reason=EVIL),
        ),
    ),
)


def visit(folder: Path, *options: str) -> dict:
    path = folder / "page.html"
    path.write_text(page(MATRIX).replace("</body>", f"{VISIT}</body>"), encoding="utf-8")
    usual = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
    profile = f"--user-data-dir={folder / 'profile'}"
    command = [CHROMIUM, *usual, profile, *options, "--dump-dom", path.as_uri()]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    found = re.search(r'<pre id="told">(.*?)</pre>', result.stdout, re.DOTALL)
    assert found, result.stdout[-2000:] + result.stderr[-2000:]
    return json.loads(html.unescape(found[1]))


@needs_chromium
def test_in_a_browser_it_shows_filters_and_explains(tmp_path):
    told = visit(tmp_path)
    assert told["all"] == 6  # three files, two readers
    assert len(set(told["colours"])) == 4
    assert (told["of_type"], told["refused"], told["of_family"]) == (4, 2, 2)
    assert told["counts"].split() == ["all", "2", "2", "0", "0", "0", "1", "0", "1", "0"]
    assert told["types"] == ["", "acme.A@1", "acme.B@1"]
    # names from files are text, whatever they say
    assert EVIL in told["panel"]
    assert told["title"] == "Golden files: writers × readers"
    assert told["images"] == 0


@needs_chromium
def test_in_a_browser_it_is_dark_where_that_is_preferred(tmp_path):
    light = visit(tmp_path)["dark"]
    dark = visit(tmp_path, "--blink-settings=preferredColorScheme=0")["dark"]
    assert light != dark


def test_it_loads_nothing_and_is_one_file():
    text = page(MATRIX)
    own = text.replace(html.escape(EVIL), "")  # what the page says besides what files do
    own = re.sub(r"<script type.*?</script>", "", own, flags=re.DOTALL)
    assert not re.search(r"(src|href)=|@import|url\(|https?://", own)
    assert "default-src 'none'" in text


def test_the_page_of_torchaos_releases_shows_none_that_this_reads_wrongly():
    text = (Path(__file__).parents[2] / "docs/matrix.html").read_text(encoding="utf-8")
    assert len(text) < 1_000_000
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])
    assert [label for label, _ in data["readers"]] == ["this checkout", "torchao 0.18.0"]
    outcomes = [name for name, _ in data["outcomes"]]
    ours = {outcomes[readings[0][0]] for *_, readings in data["rows"]}
    assert ours == {"equal", "refused"}
