# %% [markdown]
# # What a rule of direct I/O costs a stream, drawn from the lab's results
#
# The cells of this file are those of a notebook: editors and Jupyter (jupytext) run them one by
# one, `python lab_plots.py REPORT.json PLOT.png` runs all. Before it:
#
#     iopath lab run dio-boundary-sata --seeds 1..3 --json report.json
#     pip install pandas matplotlib

# %%
import sys

import matplotlib.pyplot as plt
from extxfs import lab

report, plot = [*sys.argv[1:], "report.json", "plot.png"][:2]
runs = lab.frame(report)
stream = runs[(runs["case"] == "stream") & runs["point"].isna()]
stream[["variant", "seed", "rate", "bios", "count.device_writes"]]

# %% [markdown]
# Throughput of each variant: the median over the seeds, and each run as a point.

# %%
figure, (bars, sweep, time) = plt.subplots(1, 3, figsize=(15, 4), layout="constrained")
medians = stream.groupby("variant")["rate"].median().sort_values()
bars.barh(medians.index, medians, color="lightsteelblue")
bars.plot(stream["rate"], stream["variant"], "k.")
bars.set(title="a stream of 512 KiB", xlabel="MiB/s")

# %% [markdown]
# The sweep: does a write cache hide the rule?

# %%
points = lab.frame(report, "sweeps").pivot(index="point", columns="title", values="obtained")
points.plot(ax=sweep, marker="o", xlabel="write cache, MiB", ylabel="MiB/s", title="with a cache")

# %% [markdown]
# The rate over the time of one run.

# %%
series = lab.frame(report, "series")
first = series[(series["case"] == "stream") & (series["seed"] == series["seed"].min())]
first = first[first["series"] == "writes of the device"]
for variant, one in first.groupby("variant"):
    time.plot(one["seconds"], one["value"], label=variant)
time.set(title="writes of one run", xlabel="s", ylabel=first["unit"].iloc[0])
time.legend()

# %%
figure.savefig(plot)
