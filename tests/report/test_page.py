"""The report page: it opens from disk alone, the viewer works, and nothing in a config can become markup."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from attention_lab.data.batches import Batch
from attention_lab.evaluation.comparison import Run, group_runs
from attention_lab.evaluation.examples import MappedExample
from attention_lab.evaluation.records import (
    Accuracy,
    Attribution,
    Baselines,
    Environment,
    HeadAlignment,
    HeadRecord,
    Interventions,
    JointAblation,
    LengthRecord,
    Patching,
    PatternRecord,
    Report,
    Scores,
    TaskRecord,
)
from attention_lab.metrics.alignment import Head
from attention_lab.models.encoder_decoder import EncoderDecoder
from attention_lab.plotting.curves import PANELS
from attention_lab.plotting.labels import map_view
from attention_lab.plotting.samples import compare
from attention_lab.report import words
from attention_lab.report.page import write_comparison_page, write_page
from attention_lab.report.replay import Replay
from attention_lab.runs.history import Moment
from tests.browser import AXE, axe, needs_chromium, opened

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
LEFT = Accuracy(1.0, 1.0)
ALIGNED = tuple(0.125 * (number + 1) for number in range(7))
HEAD = HeadRecord("decoder_cross", 0, 0, "", *ALIGNED, 0.375, 0.75, 0.9375, 1.0)
REPORT = Report(
    scores=Scores(0.25, 1.0, 1.0, 1.0, 0.0, 0.75, 0.5),
    checkpoint="</script><b>best</b>.ckpt",
    step=17,
    best_head=Head("decoder_cross", 1, 1),
    baselines=Baselines(HeadAlignment("decoder_cross", 0, 1, "", 0.1875, *[0.1] * 6), 0.09375),
    length_curve=[LengthRecord(length, 7, *[0.5] * 9) for length in (4, 8)],
    heads=[HEAD],
    interventions=Interventions(
        aligned=[HEAD.address],
        cut=[HEAD.address],
        intact=LEFT,
        without_heads=LEFT,
        without_gold_edges=LEFT,
        without_random_edges=LEFT,
        together=[JointAblation(0, 1.0, 1.0), JointAblation(1, 0.0, 0.5)],
    ),
    tasks=[],
    patterns=[PatternRecord("encoder_self", 0, 1, 0.5, 0.25, None, 0.125, 0.0, 7, 0.75)],
    patching=Patching(
        clean_source=["4", "1", "<eos>"],
        corrupted_source=["5", "6", "<eos>"],
        clean=["1", "4", "<eos>"],
        corrupted=["6", "5", "<eos>"],
        heads=[HEAD.address],
        restored=[[0.25, -0.001, None]],
        together=[1.0, 0.5, None],
    ),
    attribution=Attribution(0.875, 0.625),
    config={"task": {"_target_": "attention_lab.tasks.reverse.Reverse"}, "note": "</script><b>note</b>"},
    environment=Environment("3.11", "2.13", "cpu"),
)

HOSTILE = "</script><script>alert(1)</script> \u2028 <!-- & ' \" `"
MOMENTS = [
    Moment(0, None, None, np.zeros((2, 2, 3, 3), dtype=np.uint8)),
    Moment(10, 0.5, np.full((2, 2), 0.25), np.full((2, 2, 3, 3), 128, dtype=np.uint8)),
    Moment(20, 1.0, np.full((2, 2), 1.0), np.full((2, 2, 3, 3), 255, dtype=np.uint8)),
]


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
        Replay(EXAMPLE, map_view("decoder_cross", 0, EncoderDecoder.axes["decoder_cross"], EXAMPLE).labels, MOMENTS),
    )
    return tmp_path / "report.html"


@pytest.fixture
def comparison(tmp_path: Path) -> Path:
    curve = [LengthRecord(length, 7, *[0.5] * 9) for length in (4, 8)]
    mapped = MappedExample(EXAMPLE, MAPS, EncoderDecoder.axes, {})
    settings = {"task": "Copy", "note": HOSTILE, "seed": 0}
    best = {"best_head": REPORT.best_head, "mapped": mapped}
    better = replace(REPORT.scores, alignment_hit_rate=1.0)
    runs = [
        Run("a.ckpt", settings, (1, 16), 5, None, 100, REPORT.scores, curve, **best, page="reports/a.html"),
        Run(
            "b c.ckpt",
            {**settings, "note": "none"},
            (1, 16),
            5,
            None,
            100,
            better,
            curve,
            **best,
            page="reports/b c.html",
        ),
    ]
    groups, _ = group_runs(runs)
    (tmp_path / "comparison").mkdir()
    write_comparison_page(groups, (1, 16), tmp_path / "comparison" / "report.html")
    return tmp_path / "comparison" / "report.html"


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
    assert '<th scope="row">test/loss</th><td>0.2500</td>' in text
    # How it aligns, then what is lost: 1 less what is left.
    figures = ["0.1250", "0.2500", "0.3750", "0.5000", "0.6250", "0.7500", "0.8750"]
    figures += ["0.6250", "0.2500", "0.0625", "0.0000"]
    assert "head 0</th>" + "".join(f"<td>{figure}</td>" for figure in figures) in text
    assert "before training (decoder_cross, layer 0, head 1)</th><td>0.1875</td><td>0.1000</td>" in text
    assert "alike</th><td>0.0938</td><td>0.0938</td>" in text
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
    heads = [replace(HEAD, head=head, exact_match_with_mean=left) for head, left in enumerate(with_mean)]
    addresses = [head.address for head in heads]
    cuts = replace(
        REPORT.interventions,
        aligned=addresses[:aligned],
        cut=addresses[:aligned] or addresses,
        intact=Accuracy(intact, intact),
    )
    return words.evidence(replace(REPORT, heads=heads, interventions=cuts))


def test_the_evidence_in_words():
    assert "falls by 0.010 at most, since the others stand in for it" in evidence(1.0, 0.99, 1.0)
    assert "2 of 2 heads" in evidence(1.0, 0.99, 1.0, aligned=2)
    needed = evidence(1.0, 0.4, 1.0)
    assert "is always its mean: decoder_cross, layer 0, head 0 (by 0.600)." in needed
    assert "stand in" not in needed
    assert "Next to nothing is answered right" in evidence(0.0, 0.0, 0.0)
    assert "There is but one head" in evidence(1.0, 0.98)
    assert evidence(1.0, 0.0, 0.0, aligned=0).startswith("No head hits nine gold tokens in ten")


def test_a_mixture_has_a_table_of_which_head_serves_which_task(tmp_path):
    tasks = [
        TaskRecord(name, 7, 1.0, 1.0, 0.875, 0.5, 0.25, HEAD.address, [replace(HEAD, hit_rate=hit_rate)])
        for name, hit_rate in (("copy", 0.0625), ("<b>", 1.0))
    ]
    write_page(replace(REPORT, tasks=tasks), "mixture", (2, 16), [], [], tmp_path / "report.html")
    text = without_plotly(tmp_path / "report.html")
    columns = ("copy: hit rate", "copy: mass", "copy: exact match lost, mean", "&lt;b&gt;: hit rate")
    assert "".join(f'<th scope="col">{column}</th>' for column in columns) in text
    assert "<li>&lt;b&gt;: exact match 0.8750 decoded on 7 sequences; best aligned is decoder_cross" in text
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


def test_data_for_scripts_cannot_end_or_begin_one_and_reads_back(comparison):
    text = without_plotly(comparison)
    assert text.count("</script>") == 2
    assert "alert(1)</script>" not in text
    assert "<!--" not in text
    block = re.search(r'id="data">(.*?)</script>', text, re.S)
    assert block is not None
    assert not set("<>&\u2028") & set(block[1])
    labels = [group["label"] for group in json.loads(block[1])["groups"]]
    # The better one first.
    assert labels == ["note=none", f"note={HOSTILE}"]


def test_a_comparison_opens_with_a_verdict_and_a_short_table_best_first(comparison):
    text = without_plotly(comparison)
    assert '<p class="verdict">All of 2 kinds of run answer at least 99 % of the test sequences rightly' in text
    short = text.index('<th scope="row">none</th><td>1</td><td>1.0000</td><td>1.0000</td><td>1.0000</td>')
    assert short < text.index("alert(1)&lt;/script&gt;", short) < text.index("Where they look")


def test_what_no_map_was_measured_of_is_a_dash(tmp_path):
    blank = replace(HEAD, **dict.fromkeys(("hit_rate", "mass", "mass_p5", "mass_min", "entropy", "confidence")))
    report = replace(
        REPORT,
        scores=replace(REPORT.scores, alignment_hit_rate=None, alignment_mass=None),
        baselines=Baselines(replace(REPORT.baselines.untrained, hit_rate=None, mass=None), None),
        heads=[blank],
        interventions=replace(REPORT.interventions, without_gold_edges=None, without_random_edges=None),
    )
    write_page(report, "reverse", (1, 3000), [], [], tmp_path / "report.html")
    text = without_plotly(tmp_path / "report.html")
    assert "head 0</th><td>–</td><td>–</td>" in text
    assert "too long for single edges to be cut" in text
    lines = "\n".join(words.terminal_summary(report, 3000))
    assert "their gold edges           –" in lines
    assert "hit rate –, mass – (chance –)" in lines


def test_the_verdict_says_whether_by_which_heads_and_how_far():
    gone, few = Accuracy(0.0, 0.1), Accuracy(0.0004, 0.2)
    cuts = replace(REPORT.interventions, without_heads=gone, without_gold_edges=few)
    curve = [
        replace(REPORT.length_curve[0], length=n, decoded_exact_match=x) for n, x in ((64, 1.0), (4, 1.0), (128, 0.9))
    ]
    learned = replace(REPORT, interventions=cuts, length_curve=curve)
    assert words.verdict(learned, 16) == (
        "Every test sequence is right, to the last token. 1 of 1 heads looks where the tokens come from. Silencing "
        "it leaves 0 % right, cutting only its edges to the right tokens 0.1 %, cutting as many other edges 100 %. "
        "It holds up to 64 symbols, 4 times the longest of training, but not at 128."
    )
    nobody = replace(learned, interventions=replace(cuts, aligned=[]), length_curve=[])
    shared = "No head looks where nine tokens in ten come from (the best looks there for 75.0 %): heads share the work."
    assert f"{shared} Silencing the only one leaves" in words.verdict(nobody, 16)
    stood_in = replace(learned, heads=[HEAD, HEAD], interventions=replace(cuts, without_heads=Accuracy(0.999, 1.0)))
    assert "Silencing it leaves 99.9 % right (others stand in for it), cutting" in words.verdict(stood_in, 16)
    four = [replace(HEAD, layer=layer, head=head) for layer in (0, 1) for head in (0, 1)]
    aligned = [head.address for head in four[1:]]
    ends = [replace(REPORT.length_curve[0], length=n, decoded_exact_match=x) for n, x in ((16, 1.0), (32, 0.5))]
    some = replace(learned, heads=four, interventions=replace(cuts, aligned=aligned, cut=aligned), length_curve=ends)
    assert "3 of 4 heads (0.1, all of layer 1) look where" in words.verdict(some, 16)
    assert "It holds up to 16 symbols, the longest of training, but not at 32." in words.verdict(some, 16)
    many = [replace(HEAD, layer=layer, head=head) for layer in range(8) for head in (0, 1)]
    first = [head.address for head in many if head.head == 0]
    some = replace(learned, heads=many, interventions=replace(cuts, aligned=first, cut=first))
    assert "8 of 16 heads (0.0, 1.0, 2.0, 3.0, 4.0, 5.0 and 2 more) look" in words.verdict(some, 16)
    almost = replace(
        learned, scores=replace(REPORT.scores, decoded_exact_match=0.9999), heads=[], length_curve=curve[1:2]
    )
    assert words.verdict(almost, 16) == (
        "99.9 % of the test sequences are right, to the last token. There is no attention from target to source."
    )
    nothing = replace(learned, scores=replace(REPORT.scores, decoded_exact_match=0.0312))
    assert words.verdict(nothing, 16) == "The task is not learned: 3.1 % of the test sequences are right."


def drawn(page: Path, width: int) -> list[str]:
    """Returns what every chart of a page says that it shows, in a window that is not too narrow for it."""
    seen = opened(
        page,
        """
        const root = document.documentElement;
        const labels = [...document.querySelectorAll("[role=img]")].map((chart) => chart.getAttribute("aria-label"));
        return [root.scrollWidth - root.clientWidth, labels];
        """,
        width,
    )
    assert seen["errors"] == []
    beyond, labels = seen["found"]
    assert beyond == 0, f"{beyond} pixels lie beyond a window of {width}"
    return labels


DRAWN = """
  const drawn = [...document.querySelectorAll(".js-plotly-plot")].map((chart) => chart.id);
  if (drawn.join() !== wanted.join()) throw new Error("drawn: " + drawn);
  if (!document.body.textContent.includes("No attention was mapped.")) throw new Error("no word of it");
"""

WIDTHS = [360, *(pytest.param(width, marks=pytest.mark.slow) for width in (390, 768, 1400, 3840))]


@needs_chromium
@pytest.mark.parametrize("width", WIDTHS)
def test_a_page_never_scrolls_sideways_and_every_chart_says_what_it_shows(page, comparison, width):
    first = [label.split()[0] for label in drawn(page, width)]
    assert first == ["Attention", "Lines", "Exact", "Exact", "Heads", "Share", "Exact", "Exact"]
    first = [label.split(":")[0] for label in drawn(comparison, width)]
    assert first == ["exact match, decoded, by source length, mean", "note=none, seed 0", f"note={HOSTILE}, seed 0"]


@needs_chromium
def test_every_control_of_a_report_works(page):
    seen = opened(
        page,
        """
        const seen = [];
        const wait = (time) => new Promise((done) => setTimeout(done, time));
        const cell = () => pick("viewer").data[0].z[0][0];
        const outlines = () => pick("viewer").layout.shapes.length;
        const note = (what) => seen.push([what, pick("shown").textContent, cell(), outlines()]);
        const choose = (name, value) => { pick(name).value = value; pick(name).dispatchEvent(new Event("change")); };
        note("opened");
        document.querySelectorAll("#glance button")[0].click();
        note("first head");
        choose("attention", 0);
        note("first attention");
        seen.push(["maps", document.querySelectorAll("#glance canvas").length]);
        seen.push(["rows", document.querySelectorAll("#cells tr").length]);
        choose("attention", 1);
        pick("single").emit("plotly_click", {points: [{pointNumber: 0}]});
        note("bar");
        document.querySelectorAll("#links text")[6].dispatchEvent(new Event("mouseenter"));
        seen.push(["dimmed", [...document.querySelectorAll("#links g")].map((group) => group.style.opacity)]);
        const pen = document.querySelector("#replay canvas").getContext("2d");
        const corner = () => [...pen.getImageData(5, 5, 1, 1).data];
        pick("step").value = 0;
        pick("step").dispatchEvent(new Event("input"));
        seen.push([pick("when").textContent, corner()]);
        pick("play").click();
        seen.push([pick("play").textContent]);
        await wait(2000);
        seen.push([pick("when").textContent, pick("play").textContent, corner()]);
        document.querySelectorAll("summary").forEach((each) => each.click());
        seen.push(["open", [...document.querySelectorAll("details")].every((each) => each.open)]);
        return seen;
        """,
    )
    assert seen["errors"] == []
    third = pytest.approx(1 / 3, abs=1e-3)
    white, dark = [247, 251, 255, 255], [8, 48, 107, 255]
    assert seen["found"] == [
        ["opened", "decoder_cross, layer 1, head 1", 1, 2],
        ["first head", "decoder_cross, layer 0, head 0", third, 2],
        ["first attention", "encoder_self, layer 0, head 0", third, 0],
        ["maps", 2],
        ["rows", 4],
        ["bar", "decoder_cross, layer 0, head 0", third, 2],
        ["dimmed", ["0.08", "1", "0.08"]],
        ["step 0, before training", white],
        ["Pause"],
        ["step 20: exact match 1.000", "Play", dark],
        ["open", True],
    ]


@needs_chromium
@pytest.mark.slow
def test_a_network_without_attention_has_a_page_as_well(tmp_path):
    nothing = MappedExample(EXAMPLE, {}, {}, {})
    report = replace(REPORT, heads=[], best_head=None, baselines=Baselines(None, None), patching=None)
    write_page(report, "reverse", (1, 16), [nothing], [], tmp_path / "report.html")
    seen = opened(tmp_path / "report.html", "const wanted = ['curve']; " + DRAWN + AXE, 390, axe())
    assert seen == {"found": [], "errors": []}


@needs_chromium
@pytest.mark.slow
def test_every_control_of_a_comparison_works(comparison):
    seen = opened(
        comparison,
        """
        const seen = [];
        for (const option of [...pick("figure").options]) {
          pick("figure").value = option.value;
          pick("figure").dispatchEvent(new Event("change"));
          seen.push([option.value, pick("chart").data.length]);
        }
        const links = [...document.querySelectorAll("a")].map((link) => link.getAttribute("href"));
        return [seen, links];
        """,
    )
    assert seen["errors"] == []
    figures, links = seen["found"]
    by_length = [f"{title}, by length" for title in PANELS.values()]
    assert [name for name, _ in figures] == ["exact match on the test split", *by_length]
    # Two groups, mean and worst of each; on the test split all groups together.
    assert [number for _, number in figures] == [2] + [4] * len(PANELS)
    assert set(links) == {"reports/a.html", "reports/b%20c.html"}


@needs_chromium
@pytest.mark.slow
@pytest.mark.parametrize("which", ["report", "comparison"])
@pytest.mark.parametrize("width", [390, 1400])
def test_nobody_stumbles_over_a_page(page, comparison, which, width):
    opening = 'document.querySelectorAll("summary").forEach((each) => each.click());'
    seen = opened({"report": page, "comparison": comparison}[which], opening + AXE, width, axe())
    assert seen == {"found": [], "errors": []}
