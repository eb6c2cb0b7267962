"""Models of train_trees predict in XGBoost what they predict here, and XGBoost's here what they do there; and where
both have the same cuts, both make the same trees.

xgboost_models.py BIN_DIR   in a folder that may be written to; needs xgboost 1.7 or later, and numpy.
Both ways, by every objective that both know: missing values, categories one-hot and by set, base_score,
weights of classes, sampling, early stopping. A prediction may differ by 1e-6, absolutely or relatively.
"""
import json
import subprocess
import sys

import numpy as np
import xgboost

train_trees = sys.argv[1] + "/train_trees"
random = np.random.default_rng(1)
ROWS, FEW, MANY, QUERY = 600, 2, 3, 20  # columns 2 and 3 are categories: 3 and 12 of them
x = random.normal(size=(ROWS, 5)).astype(np.float32)
x[:, FEW] = random.integers(0, 3, ROWS)
x[:, MANY] = random.integers(0, 12, ROWS)
x[random.random((ROWS, 5)) < 0.1] = np.nan
filled = np.nan_to_num(x)
score = filled[:, 0] - filled[:, 1] * (filled[:, FEW] == 1) + np.sin(filled[:, MANY]) + filled[:, 4] ** 2 / 4
noisy = score + 0.3 * random.normal(size=ROWS)
TYPES = ["q", "q", "c", "c", "q"]
CASES = {
    "reg:squarederror": (noisy, {"base_score": 0.7}),
    "reg:absoluteerror": (noisy, {"base_score": 0.25}),
    "binary:logistic": (noisy > 0.5, {"scale_pos_weight": 2, "base_score": 0.3}),
    "multi:softprob": (np.digitize(noisy, [0, 0.7, 1.5]), {"num_class": 4}),
    "count:poisson": (np.floor(np.exp(np.clip(noisy, -2, 2))), {"base_score": 1.5}),
    "rank:ndcg": (np.digitize(noisy, [0, 0.7, 1.5]), {}),
}
failures = 0


def is_close(what, found, wanted):
    global failures
    apart = np.abs(found.reshape(wanted.shape) - wanted) / np.maximum(1, np.abs(wanted))
    if not apart.max() <= 1e-6:
        failures += 1
        print(f"FAILED: {what}: predictions are up to {apart.max():.2e} apart")


def run(objective, *arguments):
    command = [train_trees, "--data", "x.csv", "--test-data", "x.csv", "--categorical", f"{FEW + 1},{MANY + 1}",
               "--objective", objective, "--predictions", "predictions.txt", "--verbose-eval", "0", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return np.loadtxt("predictions.txt", dtype=np.float32)


for objective, (label, parameters) in CASES.items():
    columns = [label.astype(np.float32), *x.T] + ([np.arange(ROWS) // QUERY] if objective == "rank:ndcg" else [])
    with open("x.csv", "w") as file:
        for row in zip(*columns):
            file.write(",".join("" if np.isnan(value) else f"{value:.9g}" for value in row) + "\n")
    rows = xgboost.DMatrix(x, label, feature_types=TYPES, enable_categorical=True)
    flags = ["--num-round", "8", "--max-depth", "4", "--subsample", "0.8", "--max-cat-to-onehot", "4"]
    if objective == "rank:ndcg":
        rows.set_group([QUERY] * (ROWS // QUERY))
        flags += ["--query", str(x.shape[1] + 1)]
    for name, value in parameters.items():
        flags += [f"--{name.replace('_', '-')}", str(value)]

    ours = run(objective, *flags, "--save", "ours.json")
    is_close(f"parx's model of {objective}, in XGBoost", xgboost.Booster(model_file="ours.json").predict(rows), ours)
    theirs = xgboost.train({"objective": objective, "tree_method": "hist", "max_depth": 4, "max_cat_to_onehot": 4,
                            **parameters}, rows, 8)
    wanted = theirs.predict(rows)
    theirs.save_model("theirs.json")
    found = run(objective, *flags, "--save", "theirs.json", "--resume")  # has its eight rounds
    is_close(f"XGBoost's model of {objective}, in parx", found, wanted)
    is_close("the same, written anew by parx", xgboost.Booster(model_file="theirs.json").predict(rows), wanted)

# A column of few values has a cut at each, here and there: then the trees are the same, monotone columns included.
x = np.round(x * 8) / 8
label = (noisy > 0.5).astype(np.float32)
with open("x.csv", "w") as file:
    for row in zip(label, *x.T):
        file.write(",".join("" if np.isnan(value) else f"{value:.9g}" for value in row) + "\n")
for signs in ("(0,0,0,0,0)", "(1,-1,0,0,0)"):
    run("binary:logistic", "--categorical", "", "--num-round", "20", "--save", "ours.json",
        "--monotone-constraints", signs)
    xgboost.train({"objective": "binary:logistic", "tree_method": "hist", "monotone_constraints": signs},
                  xgboost.DMatrix(x, label), 20).save_model("theirs.json")
    ours, theirs = (json.load(open(name))["learner"]["gradient_booster"]["model"]["trees"]
                    for name in ("ours.json", "theirs.json"))
    for number, (a, b) in enumerate(zip(ours, theirs)):
        if a["split_indices"] != b["split_indices"] or not np.allclose(a["split_conditions"], b["split_conditions"],
                                                                       rtol=1e-4, atol=1e-5):
            failures += 1
            print(f"FAILED: with monotone columns {signs} tree {number} is another than XGBoost's")
            break

print(f"{len(CASES)} objectives with XGBoost {xgboost.__version__}, {failures} failures")
sys.exit(failures != 0)
