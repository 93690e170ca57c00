"""Plots of what a run has measured: `plots.py RESULTS DIRECTORY`, in the environment of rivals/ (matplotlib).

One SVG a group of which places are compared: how many times what the reference took, on a logarithmic scale, the
medians as bars and the least and the greatest of the rounds as lines. One SVG for all groups in which the work grows:
the medians against the number of readers, sources, names or bytes, both scales logarithmic. One SVG of what
endurance.py has reported, if `endurance.json` is beside the results. The names of the files are printed.
"""

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
from figures import Sheet

mpl.use("svg")
from matplotlib import pyplot

PLOTS = {"warm": ("warm", "tmpfs"), "cold, 16 in flight": ("cold", "ideal")}
"""Group: name of the file, and what is 1."""


def draw(sheet: Sheet, group: str, reference: str, path: Path) -> None:
    cases = [case for case in sheet.cases(group) if sheet.summary(group, case, reference)]
    places = [place for place in sheet.places(group) if place != reference]
    figure, axes = pyplot.subplots(figsize=(10, 1 + 0.16 * len(places) * len(cases)), layout="constrained")
    colours = pyplot.colormaps["tab10"]
    step = 0.84 / len(places)
    for number, place in enumerate(places):
        found = [(at, sheet.ratio(group, case, place, reference)) for at, case in enumerate(cases)]
        bars = [(at, one) for at, one in found if one is not None]
        axes.barh(
            [at - 0.42 + step * (number + 0.5) for at, _ in bars],
            [one.median for _, one in bars],
            height=step * 0.9,
            xerr=[[one.median - one.low for _, one in bars], [one.high - one.median for _, one in bars]],
            error_kw={"elinewidth": 0.8},
            color=colours(number % 10),
            label=place,
        )
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _position: f"{value:g} ×")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(range(len(cases)), cases)
    axes.invert_yaxis()
    axes.set_xlabel(f"times what {reference} takes (medians; lines: least to greatest)")
    axes.grid(axis="x", linewidth=0.3)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.06), ncols=4, frameon=False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def measured(sheet: Sheet, group: str) -> bool:
    return any(cell.measured for cell in sheet.cells.values() if cell.group == group)


def draw_growth(sheet: Sheet, groups: list[str], path: Path) -> None:
    """Draw a diagram a group. The number at the beginning of a case is where it stands on the axis."""
    figure, all_axes = pyplot.subplots(
        -(-len(groups) // 2), 2, figsize=(10, 3.2 * -(-len(groups) // 2)), layout="constrained"
    )
    for axes, group in zip(all_axes.flat, groups, strict=False):
        unit = next(cell.unit for cell in sheet.cells.values() if cell.group == group)
        for place in sheet.places(group):
            found = [(case, sheet.summary(group, case, place)) for case in sheet.cases(group)]
            steps = [(int(case.split()[0]), one) for case, one in found if one is not None]
            at, medians = [number for number, _ in steps], [one.median for _, one in steps]
            axes.errorbar(
                at,
                medians,
                yerr=[[one.median - one.low for _, one in steps], [one.high - one.median for _, one in steps]],
                marker="o",
                markersize=3,
                linewidth=1,
                label=place,
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_title(group.removeprefix("growth, "), fontsize=10)
        axes.set_xlabel(sheet.cases(group)[-1].split()[1])
        axes.set_ylabel(unit)
        axes.grid(linewidth=0.3)
        axes.legend(fontsize=8)
    for axes in all_axes.flat[len(groups) :]:
        axes.remove()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def draw_endurance(found: dict[str, Any], path: Path) -> None:
    """Draw memory, counts and times of both mounts over the minutes of all pieces, whose beginnings are lines."""
    panels = {
        "resident memory, MiB": ["MiB"],
        "descriptors, threads, processes": ["descriptors", "threads", "processes"],
        "median times, ms": [name for name in found["columns"] if name.endswith("median")],
        "99th percentiles, ms": [name for name in found["columns"] if name.endswith("p99")],
    }
    figure, all_axes = pyplot.subplots(len(panels), 1, sharex=True, figsize=(10, 11), layout="constrained")
    for axes, (title, columns) in zip(all_axes, panels.items(), strict=True):
        for style, (mount, rows) in zip(("-", "--"), found["rows"].items(), strict=True):
            for number, column in enumerate(columns):
                at = found["columns"].index(column)
                label = f"{mount}: {column.rpartition(' ')[0] or column}"
                colour = f"C{number}" if len(columns) > 1 else None
                axes.plot([row[0] for row in rows], [row[at] for row in rows], style, color=colour, label=label, lw=1)
        for begun in found["pieces"][:-1]:
            axes.axvline(begun, color="black", linewidth=0.6)
        if title.endswith("ms"):
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.set_title(title, fontsize=10)
        axes.grid(linewidth=0.3)
        axes.legend(fontsize=8, ncols=2, loc="lower right" if "MiB" in columns else "best")
    all_axes[-1].set_xlabel("minutes")
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def main() -> None:
    results, directory = Path(sys.argv[1]), Path(sys.argv[2])
    sheet = Sheet.from_json(json.loads(results.read_text())["cells"])
    # The same numbers give the same file, and text stays text.
    mpl.rcParams.update({"svg.hashsalt": "bbfs", "svg.fonttype": "none"})
    directory.mkdir(parents=True, exist_ok=True)
    for group, (name, reference) in PLOTS.items():
        if group in sheet.groups():
            draw(sheet, group, reference, directory / f"{name}.svg")
            print(directory / f"{name}.svg")
    if growing := [group for group in sheet.groups() if group.startswith("growth, ") and measured(sheet, group)]:
        draw_growth(sheet, growing, directory / "growth.svg")
        print(directory / "growth.svg")
    endured = results.with_name("endurance.json")
    if endured.exists():
        pictures = directory.parent / "pictures"  # it is no plot of the results
        pictures.mkdir(exist_ok=True)
        draw_endurance(json.loads(endured.read_text()), pictures / "endurance.svg")


if __name__ == "__main__":
    main()
