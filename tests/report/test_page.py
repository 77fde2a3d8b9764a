"""The report page: it opens from disk alone, the viewer works, and nothing in a config can become markup."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from attention_lab.data.batches import Batch
from attention_lab.models.encoder_decoder import EncoderDecoder
from attention_lab.plotting.samples import compare
from attention_lab.report.figures import MappedExample
from attention_lab.report.page import _evidence, write_page

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
ALIGNED = ("hit_rate", "mass", "mass_p5", "mass_min", "alignment_error_rate", "entropy", "confidence")
HEAD = {
    "attention": "decoder_cross",
    "layer": 0,
    "head": 0,
    **{name: 0.125 * (number + 1) for number, name in enumerate(ALIGNED)},
    "exact_match_without": 0.375,
    "token_accuracy_without": 0.75,
    "exact_match_with_mean": 0.9375,
    "token_accuracy_with_mean": 1.0,
}
REPORT = {
    "test/loss": 0.25,
    "test/alignment_hit_rate": 0.75,
    "test/alignment_mass": 0.5,
    "checkpoint": "</script><b>best</b>.ckpt",
    "step": 17,
    "best_head": {"attention": "decoder_cross", "layer": 1, "head": 1},
    "baselines": {
        "untrained": {"attention": "decoder_cross", "layer": 0, "head": 1, "hit_rate": 0.1875, "mass": 0.1},
        "chance": 0.09375,
    },
    "length_curve": [{"length": length, **dict.fromkeys(NAMES, 0.5)} for length in (4, 8)],
    "heads": [HEAD],
    "interventions": {
        "aligned": [{"attention": "decoder_cross", "layer": 0, "head": 0}],
        "cut": [{"attention": "decoder_cross", "layer": 0, "head": 0}],
        **dict.fromkeys(("intact", "without_heads", "without_gold_edges", "without_random_edges"), LEFT),
        "together": [{"silenced": 0, **LEFT}, {"silenced": 1, "exact_match": 0.0, "token_accuracy": 0.5}],
    },
    "tasks": [],
    "config": {"task": {"_target_": "attention_lab.tasks.reverse.Reverse"}, "note": "</script><b>note</b>"},
    "environment": {"torch": "2.13"},
}


@pytest.fixture
def page(tmp_path: Path) -> Path:
    said = compare(EXAMPLE, torch.tensor([[4, 9, 2]]))
    write_page(
        REPORT,
        "reverse",
        (1, 16),
        [MappedExample(EXAMPLE, MAPS, EncoderDecoder.axes, {})],
        said,
        tmp_path / "report.html",
    )
    return tmp_path / "report.html"


def without_plotly(page: Path) -> str:
    return re.sub(r"<script>.*?</script>", "", page.read_text(), count=1, flags=re.S)


def test_it_fetches_nothing_and_is_under_ten_megabytes(page):
    text = without_plotly(page)
    assert not re.findall(r"""src\s*=|href\s*=\s*"[^#]|https?://|@import|url\(""", text)
    assert page.stat().st_size < 10_000_000


def test_nothing_in_a_config_or_a_path_becomes_markup(page):
    text = without_plotly(page)
    assert "<b>" not in text
    assert "&lt;b&gt;best&lt;/b&gt;.ckpt" in text
    assert text.count("</script>") == 2


def test_figures_and_wrong_tokens_are_shown(page):
    text = without_plotly(page)
    assert "<td>test/loss</td><td>0.2500</td>" in text
    # How it aligns, then what is lost: 1 less what is left.
    figures = ["0.1250", "0.2500", "0.3750", "0.5000", "0.6250", "0.7500", "0.8750"]
    figures += ["0.6250", "0.2500", "0.0625", "0.0000"]
    assert "head 0</td>" + "".join(f"<td>{figure}</td>" for figure in figures) in text
    assert "before training (decoder_cross, layer 0, head 1)</td><td>0.1875</td><td>0.1000</td>" in text
    assert "alike</td><td>0.0938</td><td>0.0938</td>" in text
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


def evidence(intact: float, *with_mean: float, aligned: int = 1) -> str:
    heads = [{**HEAD, "head": head, "exact_match_with_mean": left} for head, left in enumerate(with_mean)]
    cuts = {**REPORT["interventions"], "aligned": heads[:aligned], "cut": heads[:aligned] or heads}
    cuts["intact"] = {"exact_match": intact, "token_accuracy": intact}
    return _evidence({**REPORT, "heads": heads, "interventions": cuts})


def test_the_evidence_in_words():
    assert "falls by 0.010 at most, since the others stand in for it" in evidence(1.0, 0.99, 1.0)
    assert "2 of 2 heads" in evidence(1.0, 0.99, 1.0, aligned=2)
    needed = evidence(1.0, 0.4, 1.0)
    assert "always says its mean: decoder_cross, layer 0, head 0 (by 0.600)." in needed
    assert "stand in" not in needed
    assert "Next to nothing is answered right" in evidence(0.0, 0.0, 0.0)
    assert "There is but one head" in evidence(1.0, 0.98)
    assert evidence(1.0, 0.0, 0.0, aligned=0).startswith("No head hits nine gold tokens in ten")


def test_a_mixture_has_a_table_of_which_head_serves_which_task(tmp_path):
    figures = {"sequences": 7, "exact_match": 1.0, "decoded_exact_match": 0.875, "alignment_hit_rate": 0.5}
    best = {"attention": "decoder_cross", "layer": 0, "head": 0}
    tasks = [
        {"task": name, **figures, "alignment_mass": 0.25, "best_head": best, "heads": [{**HEAD, "hit_rate": hit_rate}]}
        for name, hit_rate in (("copy", 0.0625), ("<b>", 1.0))
    ]
    write_page({**REPORT, "tasks": tasks}, "mixture", (2, 16), [], [], tmp_path / "report.html")
    text = without_plotly(tmp_path / "report.html")
    columns = ("copy: hit rate", "copy: mass", "copy: exact match lost, mean", "&lt;b&gt;: hit rate")
    assert "".join(f"<th>{column}</th>" for column in columns) in text
    assert "<td>0.0625</td><td>0.2500</td><td>0.0625</td><td>1.0000</td><td>0.2500</td><td>0.0625</td>" in text


def test_a_long_example_is_cut_and_says_so(tmp_path):
    tokens = torch.arange(3, 103)[None]
    long = Batch(tokens, tokens, tokens, torch.arange(99, -1, -1)[None])
    maps = {"decoder_cross": (torch.eye(100).flip(0)[None, None],)}
    said = compare(long, tokens)
    write_page(
        REPORT, "reverse", (1, 16), [MappedExample(long, maps, EncoderDecoder.axes, {})], said, tmp_path / "report.html"
    )
    block = re.search(r'id="data">(.*?)</script>', (tmp_path / "report.html").read_text(), re.S)
    assert block is not None
    (shown,) = json.loads(block[1])["examples"][0]["attentions"]
    assert shown["cut"] == "rows 1 to 48 of 100, columns 53 to 100 of 100"
    assert shown["gold"] == list(range(47, -1, -1))
    assert all(shown["layers"][0][0][row][column] == 1 for row, column in enumerate(shown["gold"]))
    assert "… and 36 more" in without_plotly(tmp_path / "report.html")


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
