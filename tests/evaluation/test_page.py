"""The report page: it opens from disk alone, the viewer works, and nothing in a config can become markup."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from attention_lab.data.batches import Batch
from attention_lab.evaluation.figures import MappedExample
from attention_lab.evaluation.page import write_page
from attention_lab.plotting.samples import compare

# reverse: 4 1 -> 1 4
EXAMPLE = Batch(
    source=torch.tensor([[7, 4, 2]]),
    target=torch.tensor([[1, 4, 7]]),
    labels=torch.tensor([[4, 7, 2]]),
    alignment=torch.tensor([[1, 0, -1]]),
)
MAPS = {
    "encoder_self": (torch.full((1, 2, 3, 3), 1 / 3),),
    "decoder_cross": (torch.full((1, 2, 3, 3), 1 / 3), torch.eye(3)[None, None].repeat(1, 2, 1, 1)),
}
LEFT = {"exact_match": 1.0, "token_accuracy": 1.0}
NAMES = ("token_accuracy", "exact_match", "decoded_exact_match", "alignment_hit_rate", "alignment_mass")
REPORT = {
    "test/loss": 0.25,
    "checkpoint": "</script><b>best</b>.ckpt",
    "step": 17,
    "best_head": {"attention": "decoder_cross", "layer": 1, "head": 1},
    "length_curve": [{"length": length, **dict.fromkeys(NAMES, 0.5)} for length in (4, 8)],
    "heads": [
        {
            "attention": "decoder_cross",
            "layer": 0,
            "head": 0,
            "hit_rate": 0.5,
            "mass": 0.25,
            "exact_match_without": 0.125,
            "token_accuracy_without": 0.75,
        }
    ],
    "interventions": {
        "aligned": [{"attention": "decoder_cross", "layer": 0, "head": 0}],
        **dict.fromkeys(("intact", "without_heads", "without_gold_edges", "without_random_edges"), LEFT),
    },
    "config": {"task": {"_target_": "attention_lab.tasks.reverse.Reverse"}, "note": "</script><b>note</b>"},
    "environment": {"torch": "2.13"},
}


@pytest.fixture
def page(tmp_path: Path) -> Path:
    said = compare(EXAMPLE, torch.tensor([[4, 9, 2]]))
    write_page(REPORT, (1, 16), [MappedExample(EXAMPLE, MAPS)], said, tmp_path / "report.html")
    return tmp_path / "report.html"


def without_plotly(page: Path) -> str:
    return re.sub(r"<script>.*?</script>", "", page.read_text(), count=1, flags=re.S)


def test_it_fetches_nothing_and_is_under_ten_megabytes(page):
    text = without_plotly(page)
    assert not re.findall(r"""(?:src|href)\s*=|https?://|@import""", text)
    assert page.stat().st_size < 10_000_000


def test_nothing_in_a_config_or_a_path_becomes_markup(page):
    text = without_plotly(page)
    assert "<b>" not in text
    assert "&lt;b&gt;best&lt;/b&gt;.ckpt" in text
    assert text.count("</script>") == 2


def test_figures_and_wrong_tokens_are_shown(page):
    text = without_plotly(page)
    assert "<td>test/loss</td><td>0.2500</td>" in text
    assert "<td>0.5000</td><td>0.2500</td><td>0.1250</td><td>0.7500</td>" in text
    assert '1 <span class="wrong">6</span> &lt;eos&gt;' in text


def test_the_viewer_gets_every_map_with_its_labels_and_gold(page):
    block = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.S)
    assert block is not None
    data = json.loads(block[1])
    (example,) = data["examples"]
    own, cross = example["attentions"]
    assert own["gold"] is None
    assert cross["gold"] == [1, 0, None]
    assert (cross["queries"], cross["keys"]) == (["1", "4", "<eos>"], ["4", "1", "<eos>"])
    assert cross["layers"][1][1] == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]


CLICKS = """
<script>
window.addEventListener("load", () => setTimeout(() => {
  const seen = [];
  const note = () => {
    const viewer = document.getElementById("viewer");
    seen.push([document.getElementById("attention").selectedOptions[0].text, viewer.data[0].z[0][0],
               viewer.layout.shapes.length, viewer.querySelectorAll(".hm image").length]);
  };
  const choose = (name, value) => {
    const select = document.getElementById(name);
    select.value = value;
    select.dispatchEvent(new Event("change"));
    note();
  };
  note();
  choose("layer", 0);
  choose("attention", 0);
  document.title = JSON.stringify(seen);
}, 500));
window.addEventListener("error", (event) => { document.title = "error: " + event.message; });
</script>
"""


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium to open the page in")
def test_the_viewer_follows_clicks_in_a_browser_without_a_network(page, tmp_path):
    page.write_text(page.read_text().replace("</body>", CLICKS + "</body>"))
    flags = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-sync"
    command = [
        "chromium",
        *flags.split(),
        f"--user-data-dir={tmp_path}/profile",
        "--host-resolver-rules=MAP * ~NOTFOUND",
    ]
    command += ["--virtual-time-budget=5000", "--dump-dom", page.as_uri()]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    title = re.search(r"<title>(.*?)</title>", dom)
    assert title is not None
    third = pytest.approx(0.333, abs=1e-3)
    # It opens on the best head's map; then another layer, then an attention without any gold.
    assert json.loads(title[1]) == [
        ["decoder_cross", 1, 2, 1],
        ["decoder_cross", third, 2, 1],
        ["encoder_self", third, 0, 1],
    ]
