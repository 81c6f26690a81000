# A plan for several runs: seeds and learning rates. Run it from the root of a clone.

# %% plan
cat examples/data/rates.json
