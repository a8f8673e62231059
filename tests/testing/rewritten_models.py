"""The same model, written in another way: functions of which the posterior is known to be that of the
function they are made from.

Either what the function calls is replaced (`sample`, `plate`, `deterministic`: what a user would write
in their place), or its source is written anew.
"""

import ast
import contextlib
import inspect
import textwrap
import types
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints, transforms

import probml

OWN = ("sample", "plate", "deterministic", "factor", "param")


class Unwritten(Exception):
    """The function cannot be written in this way, or it would be the same."""


class _Instead:
    """A module of which some names are others."""

    def __init__(self, module: Any, names: Mapping[str, Any]):
        self._module, self._names = module, names

    def __getattr__(self, name: str) -> Any:
        return self._names[name] if name in self._names else getattr(self._module, name)


def rebound(function: Callable, names: Mapping[str, Callable]) -> Callable:
    """The function, and those of its module that it calls, with other functions under the names of
    NumPyro's."""
    inner = plain_function(function)
    own = inner.__globals__
    fresh = {**own, "numpyro": _Instead(numpyro, names)}
    for key, value in own.items():
        if any(value is getattr(numpyro, name) for name in names):
            fresh[key] = names[next(n for n in names if value is getattr(numpyro, n))]
        elif isinstance(value, types.FunctionType) and value.__globals__ is own:
            fresh[key] = _copied(value, fresh, {})
    cells = {}
    for key, cell in zip(inner.__code__.co_freevars, inner.__closure__ or (), strict=True):
        value = cell.cell_contents
        if isinstance(value, types.FunctionType) and value.__globals__ is own:
            cells[key] = types.CellType(_copied(value, fresh, {}))
    return _copied(inner, fresh, cells)


def plain_function(function: Callable) -> types.FunctionType:
    if not isinstance(function, types.FunctionType) or hasattr(function, "__wrapped__"):
        raise Unwritten("no plain function")
    return function


def _copied(function: types.FunctionType, names: dict, cells: Mapping[str, Any]) -> Callable:
    closure = tuple(cells.get(key, cell) for key, cell in zip(
        function.__code__.co_freevars, function.__closure__ or (), strict=True))
    out = types.FunctionType(function.__code__, names, function.__name__, function.__defaults__,
                             closure)
    out.__kwdefaults__, out.__qualname__ = function.__kwdefaults__, f"rewritten.{function.__name__}"
    out.__module__ = function.__module__
    return out


def with_inputs(function: Callable, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable:
    """The function after a change of its arguments."""
    signature = inspect.signature(function)

    def changed(**arguments):
        return function(**change(arguments))

    changed.__signature__, changed.__name__ = signature, function.__name__
    return changed


# What is called instead of `sample`


def rescaled(fn: Any, by: float) -> Any:
    """The distribution of `by` times a number, of the same family; None of a family without a unit."""
    if isinstance(fn, dist.Independent):
        base = rescaled(fn.base_dist, by)
        return None if base is None else base.to_event(fn.reinterpreted_batch_ndims)
    if isinstance(fn, dist.ExpandedDistribution):
        base = rescaled(fn.base_dist, by)
        return None if base is None else base.expand(fn.batch_shape)
    for kinds, make in UNITS:
        if type(fn) in kinds:
            return make(fn, by)
    return None


UNITS = (
    ((dist.Normal, dist.Cauchy, dist.Laplace, dist.Gumbel, dist.Logistic),
     lambda fn, by: type(fn)(fn.loc * by, fn.scale * by)),
    ((dist.StudentT,), lambda fn, by: dist.StudentT(fn.df, fn.loc * by, fn.scale * by)),
    ((dist.HalfNormal, dist.HalfCauchy), lambda fn, by: type(fn)(fn.scale * by)),
    ((dist.Exponential,), lambda fn, by: dist.Exponential(fn.rate / by)),
    ((dist.Gamma,), lambda fn, by: dist.Gamma(fn.concentration, fn.rate / by)),
    ((dist.InverseGamma,), lambda fn, by: dist.InverseGamma(fn.concentration, fn.rate * by)),
    ((dist.LogNormal,), lambda fn, by: dist.LogNormal(fn.loc + np.log(by), fn.scale)),
    ((dist.Weibull,), lambda fn, by: dist.Weibull(fn.scale * by, fn.concentration)),
    ((dist.Uniform,), lambda fn, by: dist.Uniform(fn.low * by, fn.high * by)),
    ((dist.MultivariateNormal,), lambda fn, by: dist.MultivariateNormal(
        fn.loc * by, scale_tril=fn.scale_tril * by)),
)


def _observed(name: str, obs: Any, seen: set[str]) -> bool:
    return obs is not None or name in seen


def in_units(seen: set[str], by: float, factors: dict[str, float]) -> dict[str, Callable]:
    """Parameters in another unit: `mean = sample("mean", Normal(0, 5 * by)) / by`."""
    def sample(name, fn, obs=None, **more):
        other = None if _observed(name, obs, seen) else rescaled(fn, by)
        if other is None:
            return numpyro.sample(name, fn, obs=obs, **more)
        factors[name] = by
        return numpyro.sample(name, other, **more) / by
    return {"sample": sample}


def outcomes_in_units(sites: set[str], by: float, factors: dict[str, float]) -> dict[str, Callable]:
    """Observed sites in another unit: `y = sample("y", Normal(by * mean, by * sigma)) / by`."""
    def sample(name, fn, obs=None, **more):
        other = rescaled(fn, by) if name in sites else None
        if other is None:
            return numpyro.sample(name, fn, obs=obs, **more)
        factors[name] = by
        return numpyro.sample(name, other, obs=obs, **more) / by
    return {"sample": sample}


def as_standard(seen: set[str], computed: dict[str, float]) -> dict[str, Callable]:
    """Normal parameters by standard normal ones: `mean + sd * sample("z", Normal(0, 1))`."""
    def sample(name, fn, obs=None, **more):
        inner = fn
        while isinstance(inner, dist.Independent | dist.ExpandedDistribution):
            inner = inner.base_dist
        if _observed(name, obs, seen) or type(inner) is not dist.Normal:
            return numpyro.sample(name, fn, obs=obs, **more)
        computed[name] = 1.0
        z = dist.Normal(0.0, 1.0)
        if fn.batch_shape or fn.event_shape:
            z = z.expand(fn.batch_shape + fn.event_shape).to_event(len(fn.event_shape))
        return numpyro.deterministic(
            name, inner.loc + inner.scale * numpyro.sample(f"{name}_raw", z, **more))
    return {"sample": sample}


def as_logarithms(seen: set[str], computed: dict[str, float]) -> dict[str, Callable]:
    """Positive parameters by their logarithms, with the Jacobian that TransformedDistribution adds."""
    def sample(name, fn, obs=None, **more):
        if _observed(name, obs, seen) or not _positive(fn.support):
            return numpyro.sample(name, fn, obs=obs, **more)
        computed[name] = 1.0
        log = dist.TransformedDistribution(fn, transforms.ExpTransform().inv)
        return numpyro.deterministic(name, jnp.exp(numpyro.sample(f"log_{name}", log, **more)))
    return {"sample": sample}


def _positive(support: Any) -> bool:
    while isinstance(support, type(constraints.independent(constraints.real, 1))):
        support = support.base_constraint
    return support is constraints.positive


def as_synonyms(computed: dict[str, float]) -> dict[str, Callable]:
    """Families under their other names: HalfNormal as a truncated normal, Exponential as Gamma."""
    def other(fn):
        if isinstance(fn, dist.Independent):
            return other(fn.base_dist).to_event(fn.reinterpreted_batch_ndims)
        if isinstance(fn, dist.ExpandedDistribution):
            return other(fn.base_dist).expand(fn.batch_shape)
        return SYNONYMS[type(fn)](fn) if type(fn) in SYNONYMS else fn

    def sample(name, fn, obs=None, **more):
        now = other(fn)
        if str(now) != str(fn):
            computed[name] = 1.0
        return numpyro.sample(name, now, obs=obs, **more)
    return {"sample": sample}


SYNONYMS = {
    dist.HalfNormal: lambda fn: dist.TruncatedNormal(0.0, fn.scale, low=0.0),
    dist.HalfCauchy: lambda fn: dist.TruncatedCauchy(0.0, fn.scale, low=0.0),
    dist.Exponential: lambda fn: dist.Gamma(1.0, fn.rate),
    dist.LogNormal: lambda fn: dist.TransformedDistribution(
        dist.Normal(fn.loc, fn.scale), transforms.ExpTransform()),
    dist.Normal: lambda fn: dist.TransformedDistribution(
        dist.Normal(jnp.zeros(()), 1.0), transforms.AffineTransform(fn.loc, fn.scale)),
    dist.Cauchy: lambda fn: dist.StudentT(1.0, fn.loc, fn.scale),
    dist.BernoulliLogits: lambda fn: dist.Binomial(1, logits=fn.logits),
    dist.BernoulliProbs: lambda fn: dist.Binomial(1, probs=fn.probs),
    dist.CategoricalProbs: lambda fn: dist.Categorical(logits=jnp.log(fn.probs)),
    dist.CategoricalLogits: lambda fn: dist.Categorical(jnp.exp(fn.logits - jnp.log(
        jnp.exp(fn.logits).sum(-1, keepdims=True)))),
    dist.Beta: lambda fn: dist.BetaProportion(
        fn.concentration1 / (fn.concentration1 + fn.concentration0),
        fn.concentration1 + fn.concentration0),
}


def mirrored(name: str) -> str:
    """The name with the alphabet reversed, so that names sort the other way round."""
    return "s_" + "".join(chr(ord("a") + ord("z") - ord(c)) if "a" <= c <= "z" else c for c in name)


def renamed() -> dict[str, Callable]:
    """Sites and plates under names that sort the other way round."""
    def named(function):
        def call(name, *args, **more):
            return function(mirrored(name), *args, **more)
        return call
    return {name: named(getattr(numpyro, name)) for name in OWN}


# What is written in another way


def written(function: Callable, change: ast.NodeTransformer,
            names: Mapping[str, Any] = {}) -> Callable:
    """The function of changed source."""
    inner = plain_function(function)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inner)))
    except (OSError, SyntaxError, TypeError) as error:
        raise Unwritten("no source") from error
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef) or definition.name != inner.__name__:
        raise Unwritten("no definition")
    definition.decorator_list = []
    own = definition.args
    own.defaults = [_default(arg) for arg in own.args[len(own.args) - len(own.defaults):]]
    own.kw_defaults = [None if value is None else _default(arg)
                       for arg, value in zip(own.kwonlyargs, own.kw_defaults, strict=True)]
    before = ast.dump(definition)
    definition = ast.fix_missing_locations(change.visit(definition))
    if ast.dump(definition) == before:
        raise Unwritten("nothing to be written in another way")
    cells = {key: cell.cell_contents for key, cell in zip(
        inner.__code__.co_freevars, inner.__closure__ or (), strict=True)}
    module = {**inner.__globals__, **cells, "jnp": jnp, "numpyro": numpyro, "probml": probml, **names,
              "_defaults": {name: parameter.default for name, parameter in
                            inspect.signature(inner).parameters.items()}}
    exec(compile(ast.Module([definition], []), f"<{inner.__name__} rewritten>", "exec"), module)
    out = module[inner.__name__]
    return out


def _default(arg: ast.arg) -> ast.expr:
    """The value that the function has for an argument, whatever its expression meant where it stood."""
    return ast.Subscript(ast.Name("_defaults", ast.Load()), ast.Constant(arg.arg), ast.Load())


def _called(node: ast.AST) -> str:
    """The last name of what is called."""
    function = node.func if isinstance(node, ast.Call) else None
    return (function.attr if isinstance(function, ast.Attribute)
            else function.id if isinstance(function, ast.Name) else "")


class Swapped(ast.NodeTransformer):
    """Statements that do not need each other in the reverse order."""

    def generic_visit(self, node):
        super().generic_visit(node)
        for part in ("body", "orelse"):
            if isinstance(own := getattr(node, part, None), list):
                setattr(node, part, self.reversed([s for each in own for s in self.split(each)]))
        return node

    @staticmethod
    def split(node):
        """`a, b = f(), g()` as two statements."""
        if (isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple)
                and len(node.targets) == 1 and isinstance(node.targets[0], ast.Tuple)
                and len(node.targets[0].elts) == len(node.value.elts)
                and not any(isinstance(e, ast.Starred) for e in node.value.elts)):
            pairs = list(zip(node.targets[0].elts, node.value.elts, strict=True))
            stored = {n for target, _ in pairs for n in _names(target, ast.Store)}
            if not stored & {n for _, value in pairs for n in _names(value, ast.Load)}:
                return [ast.Assign([target], value) for target, value in pairs]
        return [node]

    @staticmethod
    def reversed(body):
        order, moved = list(enumerate(body)), True
        while moved:
            moved = False
            for i in range(len(order) - 1):
                (a, one), (b, other) = order[i], order[i + 1]
                if a < b and _independent(one, other):
                    order[i], order[i + 1], moved = order[i + 1], order[i], True
        return [node for _, node in order]


def only_observed(function: Callable, name: str) -> bool:
    """Whether an argument is what is observed and of nothing else but its size."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    allowed = [n.value for n in ast.walk(tree) if isinstance(n, ast.keyword) and n.arg == "obs"
               or isinstance(n, ast.Attribute) and n.attr in ("shape", "size", "ndim")]
    allowed += [n.args[0] for n in ast.walk(tree) if _called(n) == "len"]
    return all(any(n is other for other in allowed) for n in ast.walk(tree)
               if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load))


def _names(node, context):
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, context)}


def _independent(one, other):
    if not all(isinstance(s, ast.Assign | ast.With | ast.Expr) for s in (one, other)) or any(
            isinstance(n, ast.Subscript | ast.Attribute) and isinstance(n.ctx, ast.Store)
            for s in (one, other) for n in ast.walk(s)) or any(
            isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant) for s in (one, other)):
        return False
    reads, writes = ([_names(s, context) for s in (one, other)] for context in (ast.Load, ast.Store))
    calls = ({n.func.value.id for n in ast.walk(s) if isinstance(n, ast.Call) and isinstance(
        n.func, ast.Attribute) and isinstance(n.func.value, ast.Name)} for s in (one, other))
    if any(name in ("out", "parts", "terms") for names in calls for name in names):
        return False  # a list that grows
    return not (writes[0] & (reads[1] | writes[1]) or writes[1] & reads[0])


class TurnedArguments(ast.NodeTransformer):
    """Arguments in the reverse order."""

    def visit_FunctionDef(self, node):
        own = node.args
        first = own.args[: len(own.args) - len(own.defaults)]
        last = own.args[len(own.args) - len(own.defaults):]
        if len(own.args) < 2 or own.posonlyargs:
            raise Unwritten("no two arguments")
        pairs = list(zip(last, own.defaults, strict=True))[::-1]
        own.args = first[::-1]
        own.kwonlyargs = [arg for arg, _ in pairs] + own.kwonlyargs
        own.kw_defaults = [default for _, default in pairs] + own.kw_defaults
        own.defaults = []
        return node


class OtherAlgebra(ast.NodeTransformer):
    """Sums and products turned round, products of matrices and entries of arrays by functions."""

    def __init__(self, indices):
        self.indices = indices

    def visit_BinOp(self, node):
        self.generic_visit(node)
        if isinstance(node.op, ast.Add | ast.Mult) and not any(
                isinstance(side, ast.List | ast.Tuple | ast.JoinedStr) or isinstance(
                    side, ast.Constant) and isinstance(side.value, str)
                for side in (node.left, node.right)):
            return ast.BinOp(node.right, node.op, node.left)
        if isinstance(node.op, ast.MatMult):
            return _call("jnp.matmul", node.left, node.right)
        if isinstance(node.op, ast.Sub):
            return ast.BinOp(ast.UnaryOp(ast.USub(), node.right), ast.Add(), node.left)
        if isinstance(node.op, ast.Div) and not isinstance(node.right, ast.Constant):
            return ast.BinOp(ast.BinOp(ast.Constant(1.0), ast.Div(), node.right), ast.Mult(),
                             node.left)
        return node

    def visit_Subscript(self, node):
        self.generic_visit(node)
        if (isinstance(node.ctx, ast.Load) and isinstance(node.slice, ast.Name)
                and node.slice.id in self.indices):
            return _call("jnp.take", node.value, node.slice, ast.Constant(0))
        return node


def _call(path: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.parse(path, mode="eval").body, list(args), [])


class ExpandedPlates(ast.NodeTransformer):
    """Plates of parameters as `expand`: `with plate("groups", 6)` as `.expand([6])`."""

    def visit_With(self, node):
        if len(node.items) == 1 and _called(node.items[0].context_expr) == "plate" and not (
                _has_data(node) or any(isinstance(n, ast.With) for n in ast.walk(node)
                                       if n is not node)) and not any(
                word.arg in ("dim", "subsample_size") for word in node.items[0].context_expr.keywords):
            node.items[0].context_expr.func = ast.Name("_expanding", ast.Load())
            for inner in ast.walk(node):
                if _called(inner) == "sample":
                    inner.func = ast.Name("_expanded_sample", ast.Load())
            return node
        if any(_called(item.context_expr) == "plate" for item in node.items):
            return node
        return self.generic_visit(node)


def _has_data(node):
    return any(isinstance(n, ast.keyword) and n.arg == "obs" or _called(n) in ("rows", "factor", "scan")
               for n in ast.walk(node))


def expanding() -> dict[str, Callable]:
    sizes: list[int] = []

    @contextlib.contextmanager
    def _expanding(name, size, *args, **more):
        sizes.append(size)
        try:
            yield jnp.arange(size)
        finally:
            sizes.pop()

    def _expanded_sample(name, fn, obs=None, **more):
        return numpyro.sample(name, fn.expand(jnp.broadcast_shapes(fn.batch_shape, (sizes[-1],))),
                              obs=obs, **more)
    return {"_expanding": _expanding, "_expanded_sample": _expanded_sample}


class Pasted(ast.NodeTransformer):
    """`with probml.rows():` as a plate of the function's own, what is observed by obs=."""

    def __init__(self, sites, size, plated):
        self.sites, self.size, self.plated = sites, size, plated

    def visit_FunctionDef(self, node):
        self.generic_visit(node)
        if any(isinstance(n, ast.FunctionDef) for n in ast.walk(node) if n is not node):
            raise Unwritten("functions inside")
        if any(isinstance(n, ast.Name) and n.id in self.sites and isinstance(n.ctx, ast.Store)
               for n in ast.walk(node)):
            raise Unwritten("variables of the names of sites")
        if not node.args.args:
            self.size = f"{self.sites[0]}.shape[0]"
        node.args.kwonlyargs = [ast.arg(name) for name in self.sites] + node.args.kwonlyargs
        node.args.kw_defaults = [None] * len(self.sites) + node.args.kw_defaults
        return node

    def visit_With(self, node):
        self.generic_visit(node)
        found = [item for item in node.items if _called(item.context_expr) == "rows"]
        if found and self.plated:
            found[0].context_expr = ast.parse(f"numpyro.plate('rows_', {self.size})",
                                              mode="eval").body
        elif found:
            node.items.remove(found[0])
        return node if node.items else ast.If(ast.Constant(True), node.body, [])

    def visit_Call(self, node):
        self.generic_visit(node)
        if _called(node) == "sample" and isinstance(node.args[0], ast.Constant) and (
                node.args[0].value in self.sites):
            node.keywords.append(ast.keyword("obs", ast.Name(node.args[0].value, ast.Load())))
        return node


class ByRows(ast.NodeTransformer):
    """The plate of a function's own observations as `probml.rows()`."""

    def __init__(self, sites):
        self.sites = sites

    def visit_FunctionDef(self, node):
        self.generic_visit(node)
        own = node.args
        kept = [(a, d) for a, d in zip(own.args, [None] * (len(own.args) - len(own.defaults))
                                       + own.defaults, strict=True) if a.arg not in self.sites]
        own.args, own.defaults = [a for a, _ in kept], [d for _, d in kept if d is not None]
        if any(isinstance(n, ast.Name) and n.id in self.sites for n in ast.walk(node)):
            raise Unwritten("what is observed is used elsewhere")
        return node

    def visit_With(self, node):
        direct = any(_called(n) == "sample" and any(
            w.arg == "obs" and isinstance(w.value, ast.Name) and w.value.id in self.sites
            for w in n.keywords) for n in ast.walk(node))
        if not direct or len(node.items) != 1 or _called(node.items[0].context_expr) != "plate" or (
                node.items[0].optional_vars is not None):
            return self.generic_visit(node)
        node.items[0].context_expr = _call("probml.rows")
        return self.generic_visit(node)

    def visit_Call(self, node):
        self.generic_visit(node)
        if _called(node) == "sample":
            node.keywords = [w for w in node.keywords if w.arg != "obs"]
        return node
