"""Notices: every licence text once, every holder's line kept, and never a text passed off as what it is not."""

import json
import lzma
from pathlib import Path

from tests.training.packages import write_wheel

from training.data.archives import open_archive
from training.data.sources import Source, write_table
from training.notices import licence_key, split_holders, text_key, write_notices

MIT = "{title}\n\nCopyright (c) {holder}\n\nPermission is hereby\ngranted, free of charge.\n{more}"


def write_licensed(folder: Path, name: str, text: str, version: str = "1.0") -> Source:
    archive = open_archive(write_wheel(folder, name, {"a.py": "x = 1\n"}, version=version, terms=text))
    return Source(name, version, archive.licence, archive.sha256, "yes")


def write_corpus_of(folder: Path, texts: dict[str, str]) -> Path:
    folder.mkdir()
    rows = [json.dumps({"package": name, "path": "a.py", "text": text}) for name, text in texts.items()]
    for language in ("python", "javascript", "typescript"):
        with lzma.open(folder / f"{language}-00.jsonl.xz", "wt") as lines:
            lines.write("\n".join(rows if language == "python" else []))
    return folder


def test_texts_stand_once_and_holders_each(tmp_path: Path) -> None:
    """Titles, line breaks and whose it is may differ; a further sentence makes another text."""
    archives = tmp_path / "archives"
    rows = [
        write_licensed(archives, "one", MIT.format(title="MIT License", holder="2020 Ada", more="")),
        write_licensed(archives, "two", MIT.format(title="The MIT License (MIT)", holder="2021 Bea", more="\n")),
        write_licensed(
            archives, "odd", MIT.format(title="MIT License", holder="2022 Cai", more="But not for odd ends.")
        ),
    ]
    write_table(tmp_path / "sources.tsv", rows)
    counts = write_notices(tmp_path / "sources.tsv", archives, None, tmp_path / "NOTICES.txt")
    text = (tmp_path / "NOTICES.txt").read_text()
    assert counts == {"recorded archive": 3}
    assert text.count("Permission is hereby") == 2 and text.count("But not for odd ends.") == 1
    assert all(text.count(f"Copyright (c) {holder}") == 1 for holder in ("2020 Ada", "2021 Bea", "2022 Cai"))
    assert all(f"{name} 1.0: MIT; recorded archive; texts: 2\n" in text for name in ("one", "two"))


def test_what_is_not_the_recorded_archive_is_said(tmp_path: Path) -> None:
    archives = tmp_path / "archives"
    for version in ("1.9", "1.10"):
        write_licensed(archives, "moved", MIT.format(title="MIT License", holder="2020 Ada", more=""), version)
    rows = [
        Source("moved", "2.0", "MIT", "0" * 64, "yes"),
        Source("absent", "3.0", "MIT License", "1" * 64, "yes"),
        Source("nameless", "1.0", "ISC", "2" * 64, "yes"),
    ]
    write_table(tmp_path / "sources.tsv", rows)
    absent = "# Copyright 2019 Dee <d@example.org>\nx = 1  # copyright of none\n"
    files = {"absent": absent, "moved": "# (c) 1999 Eve\n"}
    corpus = write_corpus_of(tmp_path / "corpus", files)
    counts = write_notices(tmp_path / "sources.tsv", archives, corpus, tmp_path / "NOTICES.txt")
    text = (tmp_path / "NOTICES.txt").read_text()
    assert counts == {"another archive": 1, "no archive": 2}
    assert "moved 2.0: MIT; another archive (version 1.10, " in text and "Eve" not in text
    assert "absent 3.0: MIT License; no archive; texts: 1\n    Copyright 2019 Dee <d@example.org" in text
    assert "copyright of none" not in text
    assert "nameless 1.0: ISC; no archive; texts: none at hand" in text


def test_prose_about_copyright_stays_in_the_text() -> None:
    body = '"Licensor" shall mean the copyright owner\n(c) You must retain\nCopyright notices stay.\n'
    assert split_holders(body)[0] == []
    holders, rest = split_holders("Copyright 2013-2020 A\n# All rights reserved.\n\n\n\n" + body)
    assert holders == ["Copyright 2013-2020 A", "# All rights reserved."] and "Licensor" in rest
    assert text_key("BSD 3-Clause License\nRedistribution  is FREE") == text_key("Redistribution\nis free.")


def test_licences_have_one_name() -> None:
    same = {"apache": ("Apache-2.0", "Apache 2", "Apache Software License"), "bsd 3": ("BSD-3-Clause", "BSD License")}
    assert all(licence_key(stated) == key for key, every in same.items() for stated in every)
    assert licence_key("BSD-2-Clause") == "bsd 2" and licence_key("The MIT License (MIT)") == "mit"
    assert licence_key("LicenseRef-Repoze-BSD-derived") == "LicenseRef-Repoze-BSD-derived"
