"""As long as the model's own draft from the left, which ends at END; otherwise as the length head says."""

from midfill_engine.lengths.learned import Learned


class Drafted(Learned):
    beam = 4
