set -e
# Snakemake calls this in its working folder, which is the project's.
python envs/setup.py --into "$CONDA_PREFIX" analysis
