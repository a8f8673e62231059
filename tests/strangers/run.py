"""Run all cases in float32, or those whose names contain a word, and say what came of each:

    python tests/strangers/run.py [word …]
"""

import sys
import time
import traceback
import warnings
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import eighteenth_cases  # noqa: E402, F401
import eighth_cases  # noqa: E402, F401
import eleventh_cases  # noqa: E402, F401
import fifteenth_cases  # noqa: E402, F401
import fifth_cases  # noqa: E402, F401
import fourteenth_cases  # noqa: E402, F401
import fourth_cases  # noqa: E402, F401
import more_cases  # noqa: E402, F401
import nineteenth_cases  # noqa: E402, F401
import ninth_cases  # noqa: E402, F401
import rare_pairs  # noqa: E402, F401
import rare_questions  # noqa: E402, F401
import seventeenth_cases  # noqa: E402, F401
import seventh_cases  # noqa: E402, F401
import sixteenth_cases  # noqa: E402, F401
import sixth_cases  # noqa: E402, F401
import tenth_cases  # noqa: E402, F401
import third_cases  # noqa: E402, F401
import thirteenth_cases  # noqa: E402, F401
import twelfth_cases  # noqa: E402, F401
import twentieth_cases  # noqa: E402, F401

import first_cases  # noqa: E402
import probml  # noqa: E402


def main() -> None:
    words, counts = sys.argv[1:], {}
    for name, (pair, ask) in first_cases.CASES.items():
        if words and not any(word in name for word in words):
            continue
        began, said = time.time(), ""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ask()
            verdict = "right"
        except AssertionError as error:
            verdict, said = "WRONG", " ".join(str(error).split())[:600]
        except (probml.Refusal, probml.ModelError, probml.DataError) as error:
            verdict, said = "refused", f"{type(error).__name__}: {error}"[:500]
        except Exception:
            verdict, said = "CRASHED", " | ".join(traceback.format_exc().strip().splitlines()[-7:])
        took = time.time() - began
        verdict = "slow" if verdict == "right" and took > 60 else verdict
        counts[verdict] = counts.get(verdict, 0) + 1
        print(f"{verdict:8s} {took:5.1f} s  {name:22s} {pair}\n          {said}" if said else
              f"{verdict:8s} {took:5.1f} s  {name:22s} {pair}", flush=True)
    print(counts)


if __name__ == "__main__":
    main()
