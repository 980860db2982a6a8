"""What the terms and figures of the screen mean, with their units; and what each pane shows."""

from collections.abc import Mapping

TERMS: Mapping[str, str] = {
    "step": "One round of the engine: plan, one forward pass of the model, apply the results. Counted from 1.",
    "batch": "The tokens of one step, of all requests together.",
    "request": "A prompt and how it is to be continued. With copies it becomes several sequences.",
    "sequence": "One growing stream of tokens, named by a letter in order of arrival.",
    "prefill": "Computing the keys and values of prompt tokens; many tokens of one request in a step.",
    "decode": "Computing one new token of a request per step.",
    "chunk": "The part of a prompt that fits into one step; the rest follows in later steps.",
    "token budget": "max_batch_tokens: the most tokens a step computes.",
    "row": "A place in the batch; max_requests_per_batch says how many there are.",
    "limit": "What ended the making of a plan: tokens, rows, blocks or margin. None when nobody was left out.",
    "page": "The keys and values of page_size tokens in one layer.",
    "block": "One page for each layer of a layer group; the unit in which cache memory is handed out.",
    "layer group": "Layers that keep the same positions and so share one block table.",
    "full attention": "A layer that looks at all earlier tokens; its blocks have capital letters.",
    "sliding window": "A layer that looks at the last tokens only; its blocks have small letters and are recycled.",
    "used": "Blocks that belong to at least one request.",
    "cached": "Blocks that belong to nobody but still hold a known prefix. They are given away when room is needed.",
    "free": "Blocks that hold nothing. used + cached + free = all.",
    "usable": "free + cached: what can be had without taking from anybody.",
    "shared": "A block that several requests point at because their tokens up to there are the same.",
    "trash block": "Block 0. Padding is written there; nothing is ever read from it.",
    "block table": "Per request and layer group: which block holds which tokens.",
    "prefix cache": "Finds blocks by what they hold, so that a prompt that begins like an earlier one starts later.",
    "hit%": "Share of a request's prompt tokens that came from the prefix cache when it was first admitted.",
    "safety margin": "Share of the pool that new prompts must leave usable, so that running ones can grow.",
    "waiting": "In the queue: it holds no row and no blocks.",
    "preempted": "It lost its blocks to somebody else and computes its tokens again later.",
    "offload": "Its blocks were copied to the CPU pool to make room; they come back without computing again.",
    "CPU pool": "Host memory for the blocks of requests that had to leave the device.",
    "refused": "It can never fit or is longer than the model allows; told when it was added.",
    "ttft": "Time to first token, from adding a request to its first token, without the time a person held the engine.",
    "itl": "Inter-token latency: mean time between two output tokens of a request, without the time a person held it.",
    "paused": "A person held the engine. That time is shown on its own and counts in no latency.",
    "invariants": "What must hold in the engine's bookkeeping after every step: each block in one state, references "
    "equal to the table entries, published pages with the right tokens. A broken one holds the engine at that step.",
    "tok/s": "Output tokens of all requests per second, over the last seconds.",
    "steps/s": "Steps per second, over the last seconds; when a pace is set, the pace.",
    "ranks": "The processes that hold a model together, each a part of every layer. Rank 0 plans and sends the plan to "
    "the others. Each waits for the plan and until all are ready for it, after a pause of the engine that long more; "
    "and in the step before it waited for the others' parts of the tensors. The longest sum is shown.",
    "LIVE": "The latest step is shown and followed.",
    "PAST": "A kept step is shown; the engine goes on or stands still as it was told.",
    "FROZEN": "The view stands still; the engine runs on.",
    "scheduler_type": "fifo serves decoding requests first, then prompts in order; prefill_first serves prompts first.",
    "victim": "Who has to give up its blocks: the one admitted last that is not in this plan.",
    "logprob": "Natural logarithm of the probability the model gave a token, before temperature.",
    "--": "Not known, or not there yet. Never a stand-in for zero.",
}

OPTION_OF: Mapping[str, str] = {"policy": "scheduler_type"}
"""Settings of the scheduler whose option has another name: people read the option's."""

_MAP = (
    "Every block of the pool, one or two cells each. A letter says who owns it, a capital one full attention,",
    "a small one a sliding window; # and = stand for an id that is longer than the cell.",
    "Shared blocks have no hue: they belong to nobody alone. In the past the blocks keep their places.",
    "v changes what the colours say, l the order; a click selects a block and the request it belongs to.",
)
_STREAM = ("The text of the selected request as it comes. Each shade is one token; i pins a stream.",)
PANES: Mapping[str, tuple[str, ...]] = {
    "hud": (
        "The state of the engine in one line: LIVE or PAST, step, pace, who runs and waits, blocks used.",
        "e, or a click on a figure, says what each figure means and how it comes about.",
        "A click on the program's name searches all commands.",
    ),
    "caption": ("What the scenario that runs shows at this step, with numbers of the engine's records.",),
    "batch": (
        "The tokens of a step, one cell per token while there is room.",
        "The upper bar is what ran, the lower one a dry run of what comes next.",
        "Hatched cells are budget nobody used; the words in them say what stood in the way.",
        "e explains the step: its sum, its limit, and every decision with its numbers.",
    ),
    "blocks": _MAP,
    "map": _MAP,
    "host": ("The CPU pool: blocks of requests that had to leave, on their way out, parked, or on their way back.",),
    "requests": (
        "One line per request, those that need attention first. The last column says why it is where it is.",
        "↑ ↓ select, enter shows its whole story, e asks the scheduler, c cancels; the right mouse button explains.",
    ),
    "stream": _STREAM,
    "streams": _STREAM,
    "detail": (
        "The story of one request: where its time went (the parts add up), why it is where it is, its block tables,",
        "its events, and its tokens with the probability the model gave them.",
    ),
    "log": ("What each step did that is worth a line, newest first. A click goes to the step, e explains it.",),
    "timeline": (
        "All kept steps from left to right: height is blocks used, the accent marks steps with a prefill.",
        "P preempted, O to the CPU pool, X cancelled, ! refused or broken, S a setting, N a new engine.",
        "A click goes to a step, e explains it; [ and ] move by one, { and } by ten.",
    ),
    "difference": ("What changed between step A (m marks it) and the step shown; the sums add up to the pool.",),
    "tables": ("The block table of each request: which blocks hold its tokens, in order.",),
    "gantt": ("The life of every request over the kept steps. + and - change how many steps a cell stands for.",),
    "offload": ("The CPU pool in full: what lies in it, what went there and back, and who is away for how long.",),
    "config": ("The configuration the engine runs with, and how each value was decided. , changes it.",),
}
