"""Discrete Bayesian networks as files: reading and writing BIF, the Bayesian Interchange Format.

    network sprinkler { }
    variable rain { type discrete [ 2 ] { no, yes }; }
    variable wet { type discrete [ 2 ] { no, yes }; }
    probability ( rain ) { table 0.8, 0.2; }
    probability ( wet | rain ) { (no) 0.9, 0.1; (yes) 0.2, 0.8; }

What is read is said in bif_reader.py.

Source: Cozman (1996), "The Interchange Format for Bayesian Networks",
    www.cs.washington.edu/dm/vfml/appendixes/bif.htm."""

import gzip
import io
import itertools
import os
import re
import secrets
import zlib
from pathlib import Path

import networkx as nx
import numpy as np

import probml
from probml.errors import listed
from probml.language.given import as_path
from probml.models.bayesian_networks.bayesian_network import bayesian_network, parents_of
from probml.models.bayesian_networks.bif_reader import TOLERANCE, Network, parse

MAX_FILE_BYTES = 2**26  # bytes of a file, unpacked; the largest of the repositories has 6 million
KEYWORDS = {"network", "variable", "probability", "property", "type", "discrete", "default",
            "table"}


def read_bif(path: str | os.PathLike) -> probml.Fit:
    """A Fit of `bayesian_network` at the tables of a BIF file, plain or gzip (recognised by its
    content).

    Args:
        path: the file; UTF-8, else read as Latin-1.

    Returns:
        Fit: nodes and labels as in the file; `"<node>.table"`, its parents in the declared order. A
            row whose sum is within 1e-5 of 1 is divided by it.

    Raises:
        ModelError: not a BIF file, or one that defines no network: path, line, node and
            configuration.

    Cost: linear in the file, about a million numbers a second.
    """
    network = parse(_text(as_path(path, "read_bif(path)")), str(path))
    dag = nx.DiGraph(name=network.name)
    dag.add_nodes_from(network.states)
    # the order of the edges is the order of the table's axes
    for node, parents in network.parents.items():
        dag.add_edges_from((parent, node) for parent in parents)
    try:
        return bayesian_network(dag, states=network.states).at(
            {f"{node}.table": table for node, table in network.tables.items()}
        )
    except probml.ModelError as error:  # a cycle, or a node that cannot name a site
        raise probml.ModelError(f"{path}: {error}") from None


def write_bif(fit: probml.Fit, path: str | os.PathLike) -> None:
    """Write the tables of a fitted discrete `bayesian_network` as BIF; as gzip if the name ends in
    .gz.

    Every digit is written, so that the same numbers are read back; labels come back as strings. The
    file appears whole or not at all.

    Raises:
        ModelError: a node that is not discrete, or another model.
    """
    path, data = as_path(path, "write_bif(path)"), render(network_of(fit)).encode()
    if path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)  # no time inside: the same fit is the same file
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def network_of(fit: probml.Fit) -> Network:
    """The network that a fit of a discrete `bayesian_network` holds. Raises: ModelError, as
    write_bif."""
    if "nodes" not in fit.model.bound:
        raise probml.ModelError("write_bif: only a fit of bayesian_network can be written as a BIF "
                                f"file, not a fit of model '{fit.model.name}'. Use fit.save(path), "
                                "which saves any fit")
    states, tables, values = {}, {}, {**fit.given, **fit.params}
    for node in parents_of(fit.model):
        if f"{node}.table" not in values:
            raise probml.ModelError(
                f"write_bif: node '{node}' is continuous or has the attribute 'distribution', but "
                f"a BIF file can contain only discrete nodes with tables. Use fit.save(path), "
                f"which saves any fit"
            )
        states[node], table = tuple(map(str, fit.labels(node))), np.asarray(values[f"{node}.table"])
        if len(set(states[node])) < len(states[node]):
            raise probml.ModelError(f"write_bif: two labels of node '{node}' are the same text, "
                                    f"{listed(fit.labels(node))}. Rename one in the data, and fit "
                                    "again")
        # The shortest digits of a narrow float, 0.3 and not 0.30000001192092896, give that float
        # back.
        tables[node] = table if table.dtype == np.float64 else table.astype(str).astype(np.float64)
        if not (np.abs(table.sum(-1) - 1) <= TOLERANCE).all():
            raise probml.ModelError(f"write_bif: the probabilities of node '{node}' do not sum "
                                    "to 1, which a BIF file needs. Fit again with more iterations. "
                                    f"The status of this fit: {fit.status}")
    return Network("unknown", states, parents_of(fit.model), tables)


def render(network: Network) -> str:
    """A network as BIF text, the inverse of `parse`: one line a configuration, numbers to the last
    digit."""
    labels = {node: [_quote_name(label) for label in states]
              for node, states in network.states.items()}
    lines = [f"network {_quote_name(network.name)} {{", "}"]
    for node, states in labels.items():
        lines += [f"variable {_quote_name(node)} {{",
                  f"  type discrete [ {len(states)} ] {{ {', '.join(states)} }};", "}"]
    for node, states in labels.items():
        parents, rows = (network.parents[node],
                         network.tables[node].reshape(-1, len(states)).tolist())
        lines.append(
            f"probability ( {_quote_name(node)}{' | ' if parents else ''}"
            f"{', '.join(map(_quote_name, parents))} ) {{"
        )
        for configuration, row in zip(itertools.product(*(labels[parent] for parent in parents)),
                                      rows, strict=True):
            lines.append(f"  {'(' + ', '.join(configuration) + ')' if parents else 'table'} "
                         f"{', '.join(map(repr, row))};")
        lines.append("}")
    return "\n".join([*lines, ""])


def _text(path: Path) -> str:
    """The text of a file, plain or gzip, UTF-8 or else Latin-1, in which every byte is a
    character."""
    if path.is_dir():
        raise probml.ModelError(f"'{path}' is a folder, expected a BIF file, such as 'network.bif'")
    with open(path, "rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)  # what has no end, as a device, is not waited for
    if data.startswith(b"\x1f\x8b"):
        try:
            data = gzip.GzipFile(fileobj=io.BytesIO(data)).read(MAX_FILE_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise probml.ModelError(f"{path}: the gzip file is damaged or incomplete ({error}). "
                                    "Download it again, or write it again by write_bif") from None
    if len(data) > MAX_FILE_BYTES:
        raise probml.ModelError(f"'{path}' contains more than {MAX_FILE_BYTES:,} bytes of text, "
                                "which is too large for a network. Check whether it is a BIF file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _quote_name(name: str) -> str:
    is_word = re.fullmatch("[A-Za-z0-9_]+", name) and name not in KEYWORDS
    return name if is_word else '"' + re.sub(r'(["\\])', r"\\\1", name) + '"'
