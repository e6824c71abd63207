"""The drill: workers on one's own engines are killed and paused, and effects are counted.

Five kinds of programs take part: the drill, which strikes and counts; the premises, which
hold a temporary folder and throwaway servers; a counting target with a database of its
own; the crew, which forks workers; and the workers, each the same `Worker` that
`counterfoil worker` runs. The drill believes nothing that workers say about effects.
"""

from counterfoil.drill.driver import Progress, run_drill
from counterfoil.drill.plan import HEADS_WORDS, STORE_WORDS, Plan, Sabotage, make_plan
from counterfoil.drill.report import Report

__all__ = [
    "HEADS_WORDS",
    "STORE_WORDS",
    "Plan",
    "Progress",
    "Report",
    "Sabotage",
    "make_plan",
    "run_drill",
]
