"""Files that people have, and words that they slip: a command answers, or ends in one line of words of ours; what a file
says is read as it says it, or it is said how not."""

import pandas as pd
import pytest

pytest.importorskip("click")
from click.testing import CliRunner  # noqa: E402

from probml.errors import DataError  # noqa: E402
from probml.models.commandline import files, learning  # noqa: E402
from probml.models.commandline.main import main  # noqa: E402


@pytest.fixture
def write(tmp_path):
    def made(text, name="table.csv", encoding="utf-8"):
        (tmp_path / name).write_bytes(text.encode(encoding))
        return str(tmp_path / name)
    return made


@pytest.mark.parametrize(("text", "said"), [
    ("a,b\n1,2,3\n4,5,6\n", "some rows have more values"),  # pandas takes a for an index
    ("a,b,a\n1,2,3\n", "2 columns named 'a'"),  # pandas calls the second a.1
    ("a;b\n1,5;2\n3,5;4\n", "its values are separated by ';'"),
    ("a;b\n1;2\n", "its values are separated by ';'"),
    ("a\tb\n1\t2\n", r"its values are separated by '\\t'"),
    ("", "cannot be read as a csv table"), ("a,b\n", "contains no rows"), ("a,b\n1,\"2\n", "cannot be read as a csv table"),
])  # fmt: skip
def test_a_table_that_could_be_read_in_two_ways_is_refused(text, said, write):
    with pytest.raises(DataError, match=said):
        files.read_table(write(text))


def test_a_byte_order_mark_is_no_part_of_a_name(write):
    assert list(files.read_table(write("a,b\n1,2\n", encoding="utf-8-sig"))) == ["a", "b"]


def test_a_comma_at_the_end_of_rows_moves_no_column(write):
    assert files.read_table(write("a,b\n1,2,\n3,4,\n")).to_dict("list") == {"a": [1, 3], "b": [2, 4]}


def test_words_that_are_read_as_unseen_are_told(write):
    path = write("drug,dose\nNone,1\nA,2\nNone,3\nA,\n,4\n")
    with pytest.warns(RuntimeWarning, match="'drug': 2 values with the text 'None' are read as missing"):
        assert files.read_table(path)["drug"].isna().tolist() == [True, False, True, False, True]


def test_a_column_of_numbers_with_a_word_in_it_is_told(write):
    path = write("a\n" + "".join(f"{i}\n" for i in range(9)) + "?\n")
    with pytest.warns(RuntimeWarning, match="'a' is read as text, because it has 1 value that cannot be read as a number: '\\?'"):
        files.read_table(path)


def test_a_long_column_is_of_one_kind(write):
    """In pieces pandas reads 1 in the first and '1' in that with a word: two labels of one."""
    path = write("a\n" + "1\n" * 400_000 + "x\n" * 400_000)
    assert files.read_table(path)["a"].unique().tolist() == ["1", "x"]


def test_a_column_without_a_name_that_counts_the_rows_is_left_out():
    table = pd.DataFrame({"Unnamed: 0": [0, 1, 2], "a": [1, 2, 4], "Unnamed: 2": [3, 3, 3]})
    with pytest.warns(RuntimeWarning, match="read as 'Unnamed: 0'. contains the row numbers"):
        assert list(learning._without_row_numbers(table)) == ["a", "Unnamed: 2"]


def test_columns_of_an_index_are_columns(tmp_path):
    pd.DataFrame({"a": [1, 2], "b": [3, 4]}).set_index("a").to_parquet(tmp_path / "t.parquet")
    assert list(files.read_table(str(tmp_path / "t.parquet"))) == ["a", "b"]


@pytest.mark.parametrize("name", ["out.parquet", "out.feather"])
def test_a_table_that_cannot_be_written_leaves_the_older_file(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(b"before")
    with pytest.raises(DataError, match="cannot store this table"):
        files.write_table(pd.DataFrame({"a": [1, "x", b"y"]}), str(path))
    assert path.read_bytes() == b"before" and [each.name for each in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("words", [
    ("fit", "@t.csv", "-m", "mixture", "-o", "@t.csv"), ("fit", "@t.csv", "-m", "mixture", "-o", "@mine.py"),
    ("report", "@fit.probml", "-o", "@fit.probml"), ("convert", "@net.bif", "@t.csv")])
def test_a_slip_of_out_loses_no_file(words, tmp_path):
    (tmp_path / "t.csv").write_text("a\n1\n2\n")
    (tmp_path / "mine.py").write_text("import probml\n")
    (tmp_path / "fit.probml").write_bytes(b"PK...")
    (tmp_path / "net.bif").write_text("network n { }\nvariable a { type discrete [ 2 ] { x, y }; }\n"
                                      "probability ( a ) { table 0.5, 0.5; }\n")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    run = CliRunner().invoke(main, [str(tmp_path / w[1:]) if w.startswith("@") else w for w in words])
    assert run.exit_code == 4 and "would be overwritten. Use another" in run.stderr
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_file_of_a_users_own_that_fails_is_named(tmp_path):
    (tmp_path / "mine.py").write_text("x = 1\ny = nothing\n")
    run = CliRunner().invoke(main, ["explain", "-m", f"{tmp_path / 'mine.py'}:line"])
    assert run.exit_code == 4 and "failed at line 2: NameError" in run.stderr


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("command", ["fit regression", "fit line", "impute", "predict", "convert", "explain data"])
def test_each_word_of_a_command_may_be_wrong(command):
    shell_calls = pytest.importorskip("shell_calls")
    assert [fault for fault in shell_calls.misused(command, 0.3, seed=1127) if fault] == []
