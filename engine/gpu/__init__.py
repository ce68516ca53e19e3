"""Half an hour on a lent machine with a GPU: tests, benches and a training run, in calls that may be lost."""
