"""As long as the model's own draft, which it writes from the left until it says END; else as the length head says."""

from midfill_engine.lengths.learned import Learned


class Drafted(Learned):
    beam = 4
