"""The goal of each test of the comparison: the least of N times the best encrypted peer, 0.85 of a FUSE server that
does nothing, and the plain directory, all in the same run. In addition never less than bindfs, which encrypts
nothing."""

ENCRYPTED = ("gocryptfs", "securefs", "encfs")
OF_NULL_SERVER = 0.85

# N for each test.
FACTORS = {
    "seqwrite": 1.6,
    "seqread": 1.6,
    "catread": 1.5,
    "rand4k_direct": 2.0,
    "rand4k_direct_4jobs": 1.4,
    "rand4k_buffered": 2.0,
    "randwrite4k": 1.6,
    "untar": 1.5,
    "lsr": 1.4,
    "readtree": 1.8,
    "rmtree": 1.3,
}
# In tests that make files, the disk has an influence.
FACTORS_ON_DISK = FACTORS | {"untar": 1.0}


def best_peer(medians):
    """The name of the fastest encrypted peer. None if none was measured."""
    measured = [name for name in ENCRYPTED if medians.get(name) is not None]
    return max(measured, key=medians.get, default=None)


def goal(test, medians, on_disk=False):
    """The goal, and the term that sets it: {"value", "term", "reached", "above_bindfs"}. `medians` maps systems to
    rates, None if one could not be measured. A term that was not measured does not count. Without any, the result is
    None."""
    factor = (FACTORS_ON_DISK if on_disk else FACTORS)[test]
    terms = []
    peer = best_peer(medians)
    if peer:
        terms.append((factor * medians[peer], f"{factor:g} × {peer}"))
    if medians.get("null") is not None:
        terms.append((OF_NULL_SERVER * medians["null"], f"{OF_NULL_SERVER:g} × null server"))
    if medians.get("plain") is not None:
        terms.append((medians["plain"], "plain"))
    if not terms:
        return None
    value, term = min(terms)
    ours, bindfs = medians.get("vaultfs"), medians.get("bindfs")
    return {
        "value": value,
        "term": term,
        "reached": None if ours is None else ours >= value,
        "above_bindfs": None if ours is None or bindfs is None else ours >= bindfs,
    }


def self_test():
    """Raises AssertionError if a goal is not as expected."""
    rates = {"plain": 1000, "null": 100, "gocryptfs": 20, "securefs": 30, "encfs": 10, "bindfs": 50, "vaultfs": 60}
    found = goal("rand4k_direct", rates)
    assert found == {"value": 60, "term": "2 × securefs", "reached": True, "above_bindfs": True}, found
    found = goal("rand4k_direct", rates | {"null": 60, "bindfs": 61})
    assert found == {"value": 51, "term": "0.85 × null server", "reached": True, "above_bindfs": False}, found
    found = goal("seqwrite", rates | {"plain": 47.5, "vaultfs": 47, "bindfs": 40})
    assert found == {"value": 47.5, "term": "plain", "reached": False, "above_bindfs": True}, found
    found = goal("rand4k_direct_4jobs", rates | {"securefs": None, "vaultfs": None})
    assert found == {"value": 28, "term": "1.4 × gocryptfs", "reached": None, "above_bindfs": None}, found
    found = goal("lsr", {"plain": None, "null": 100, "vaultfs": 85, "bindfs": None})
    assert found == {"value": 85, "term": "0.85 × null server", "reached": True, "above_bindfs": None}, found
    assert goal("untar", rates)["value"] == 45 and goal("untar", rates, on_disk=True)["value"] == 30
    assert goal("untar", {"vaultfs": 1}) is None
    assert best_peer(rates) == "securefs" and best_peer({"plain": 1, "null": 1}) is None
