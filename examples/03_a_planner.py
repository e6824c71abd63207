"""A planner proposes one action at a time, as strict JSON; refusals are counted."""

import counterfoil as cf
from counterfoil.adapters.sandbox import SandboxAdapter, lesson, load_scenario
from counterfoil.compose import Settings
from counterfoil.settings import Heads, Store

task, world = load_scenario(lesson())
settings = Settings(store=Store(url="memory:"), heads=Heads(url="memory:"))
keeper = cf.open(settings=settings, adapters=(SandboxAdapter(world),))

PROPOSALS = """\
{"kind": "read_file", "arguments": {"path": "app.py"}, "preconditions": {"version": 0}}
{"kind": "write_file", "arguments": {"path": "keys.json", "content": ""}, "key": "k-0", \
"preconditions": {"version": 0}}
{"kind": "write_file", "arguments": {"path": "app.py", "content": "%s"}, "key": "k-1", \
"preconditions": {"version": 0}}
{"kind": "run_tests", "arguments": {"target": "unit"}, "preconditions": {"version": 1}}
{"kind": "finish", "preconditions": {"version": 1}}
"""

with keeper, keeper.run(task, run_id="lesson-1") as run:
    repaired = task.verifier.expected["sandbox"]["app.py"].replace("\n", "\\n")
    for text in PROPOSALS.splitlines():
        try:
            proposal = run.propose(text.replace("%s", repaired))
            print(proposal.outcome)
            if proposal.outcome == "pending":
                print("which is", run.settle().outcome)
        except cf.CounterfoilError as error:
            print(type(error).__name__)
    print(run.state.phase, "after", run.state.spent.proposals, "proposals")

# output:
# read
# PermissionDeniedError
# pending
# which is executed
# verified
# finished
# completed after 5 proposals
