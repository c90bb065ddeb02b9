"""Whether texts have the formats of JSON Schema, each by its RFC, read from left to right without a pattern.

Judges answer True, False, or None for what the standards leave open: whether a name of Punycode is one, older and newer forms of a
definition, letters whose case the grammar alone does not settle.
"""

from __future__ import annotations

import calendar
import ipaddress
import string
from collections.abc import Callable

Verdict = bool | None
_ALNUM = string.ascii_letters + string.digits
_UNRESERVED, _SUB = _ALNUM + "-._~", "!$&'()*+,;="
_ATOM = _ALNUM + "!#$%&'*+-/=?^_`{|}~"


def _digits(text: str, most: int | None = None) -> bool:
    return bool(text) and all(c in string.digits for c in text) and (most is None or len(text) <= most)


def _both(*verdicts: Verdict) -> Verdict:
    return False if False in verdicts else None if None in verdicts else True


def _either(*verdicts: Verdict) -> Verdict:
    return True if True in verdicts else None if None in verdicts else False


def date(text: str) -> Verdict:
    """RFC 3339, full-date."""
    parts = text.split("-")
    if [len(part) for part in parts] != [4, 2, 2] or not all(map(_digits, parts)):
        return False
    year, month, day = map(int, parts)
    days = [31, 29 if calendar.isleap(year) else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    return 1 <= month <= 12 and 1 <= day <= days[month - 1]


def time(text: str) -> Verdict:
    """RFC 3339, full-time: a second 60 is 23:59:60 in UTC, by the offset."""
    clock, rest = text[:8], text[8:]
    fields = clock.split(":")
    if [len(field) for field in fields] != [2, 2, 2] or not all(map(_digits, fields)):
        return False
    hour, minute, second = map(int, fields)
    if rest[:1] == ".":
        fraction = rest[1:].lower().partition("z")[0].partition("+")[0].partition("-")[0]
        if not _digits(fraction):
            return False
        rest = rest[1 + len(fraction) :]
    if rest in ("z", "Z"):
        offset = 0
    else:
        at = rest[1:].split(":")
        if rest[:1] not in ("+", "-") or [len(x) for x in at] != [2, 2] or not all(map(_digits, at)) or int(at[0]) > 23 or int(at[1]) > 59:
            return False
        offset = (60 * int(at[0]) + int(at[1])) * (-1 if rest[0] == "-" else 1)
    if hour > 23 or minute > 59 or second > 60:
        return False
    return second < 60 or (60 * hour + minute - offset) % 1440 == 1439


def date_time(text: str) -> Verdict:
    """RFC 3339, date-time."""
    return _both(date(text[:10]), text[10:11] in ("T", "t"), time(text[11:]))


def duration(text: str) -> Verdict:
    """RFC 3339, appendix A: units without a gap. Its grammar takes small letters too, ISO 8601 does not."""
    upper = text.upper()
    if len(upper) != len(text) or upper[:1] != "P":
        return False
    day, sign, clock = upper[1:].partition("T")
    if sign and not clock:
        return False
    if not sign and day.endswith("W"):
        found = _digits(day[:-1])
    else:
        found = bool(day or clock) and (not day or _units(day, "YMD")) and (not clock or _units(clock, "HMS"))
    return found if text == upper or not found else None


def _units(text: str, names: str) -> bool:
    """Numbers with units that follow one another in the list."""
    last = -1
    while text:
        number = text[: len(text) - len(text.lstrip(string.digits))]
        unit = text[len(number) : len(number) + 1]
        at = names.find(unit) if unit else -1
        if not number or at < 0 or (last >= 0 and at != last + 1):
            return False
        last, text = at, text[len(number) + 1 :]
    return True


def uuid(text: str) -> Verdict:
    """RFC 4122."""
    parts = text.split("-")
    return [len(part) for part in parts] == [8, 4, 4, 4, 12] and all(c in string.hexdigits for part in parts for c in part)


def ipv4(text: str) -> Verdict:
    """Python's reader."""
    return _made(ipaddress.IPv4Address, text)


def ipv6(text: str) -> Verdict:
    """Python's reader; without zones."""
    return "%" not in text and _made(ipaddress.IPv6Address, text)


def _made(make: Callable[[str], object], text: str) -> bool:
    try:
        make(text)
    except ValueError:
        return False
    return True


def _label(label: str) -> bool:
    return 0 < len(label) < 64 and all(c in _ALNUM + "-" for c in label) and label[0] != "-" != label[-1]


def hostname(text: str) -> Verdict:
    """RFC 1123; whether names of Punycode encode others is left open."""
    labels = text.split(".")
    if len(text) > 253 or not all(map(_label, labels)):
        return False
    return None if any(label.lower().startswith("xn--") for label in labels) else True


def _mail(text: str, wide: Callable[[str], bool], domain: Callable[[str], Verdict]) -> Verdict:
    if text.startswith('"'):
        at = 1
        while at < len(text) and text[at] != '"':
            if text[at] == "\\":
                at += 1
                if not " " <= text[at : at + 1] <= "~":
                    return False
            elif not (" " <= text[at] <= "~" or wide(text[at])):
                return False
            at += 1
        if text[at : at + 2] != '"@':
            return False
        rest = text[at + 2 :]
    else:
        local, sign, rest = text.partition("@")
        if not sign or not all(part and all(c in _ATOM or wide(c) for c in part) for part in local.split(".")):
            return False
    if rest.startswith("[") and rest.endswith("]"):
        return _address(rest[1:-1])
    return domain(rest)


def _address(text: str) -> Verdict:
    """A literal of RFC 5321, whose numbers may begin with 0, and whose `::` stands for two groups and more."""
    if text[:5].upper() == "IPV6:":
        body = text[5:]
        head, _, tail = body.rpartition(":")
        if "." in tail and _quad(tail):  # the same groups with a plain address
            body = f"{head}:0.0.0.0"
        if not ipv6(body):
            return False
        groups = [group for group in body.split(":") if group]
        long = "::" in body and len(groups) + ("." in body) > 6
        return None if text[:5] != "IPv6:" or long or (tail != "" and "." in tail and not ipv4(tail)) else True
    return (True if ipv4(text) else None) if _quad(text) else False


def _quad(text: str) -> bool:
    return len(text.split(".")) == 4 and all(_digits(part, 3) and int(part) < 256 for part in text.split("."))


def email(text: str) -> Verdict:
    """RFC 5321, Mailbox; lengths are not looked at."""
    return _mail(text, lambda c: False, lambda host: all(map(_label, host.split("."))))


def idn_email(text: str) -> Verdict:
    """RFC 6531; what IDNA says of labels that are not ASCII is not looked at."""
    return _mail(text, lambda c: ord(c) >= 128, lambda host: all(map(_wide_label, host.split("."))))


def _wide_label(label: str) -> bool:
    return _label("".join(c if c.isascii() else "a" for c in label))


def _characters(text: str, allowed: str, wide: Callable[[int], bool]) -> bool:
    """Whether a text is made of some characters, wide ones, and escapes with `%`."""
    at = 0
    while at < len(text):
        if text[at] == "%":
            if len(text) < at + 3 or any(c not in string.hexdigits for c in text[at + 1 : at + 3]):
                return False
            at += 2
        elif text[at] not in allowed and not wide(ord(text[at])):
            return False
        at += 1
    return True


def _none(point: int) -> bool:
    return False


def _ucs(point: int) -> bool:
    """RFC 3987, ucschar."""
    if 0x10000 <= point < 0xF0000:
        return point & 0xFFFF < 0xFFFE and not 0xE0000 <= point < 0xE1000
    return 0xA0 <= point <= 0xD7FF or 0xF900 <= point <= 0xFDCF or 0xFDF0 <= point <= 0xFFEF


def _private(point: int) -> bool:
    """RFC 3987, iprivate."""
    return 0xE000 <= point <= 0xF8FF or (point >= 0xF0000 and point & 0xFFFF < 0xFFFE)


def _authority(text: str, wide: Callable[[int], bool]) -> bool:
    user, sign, rest = text.rpartition("@")
    if sign and not _characters(user, _UNRESERVED + _SUB + ":", wide):
        return False
    if rest.startswith("["):
        inside, closed, port = rest[1:].partition("]")
        version, _, name = inside[1:].partition(".")
        future = inside[:1] in ("v", "V") and all(c in string.hexdigits for c in version) and bool(version and name)
        future = future and all(c in _UNRESERVED + _SUB + ":" for c in name)
        return bool(closed) and (ipv6(inside) is True or future) and (not port or port == ":" or (port[0] == ":" and _digits(port[1:])))
    host, sign, port = rest.partition(":")
    return _characters(host, _UNRESERVED + _SUB, wide) and (not port or _digits(port))


def _reference(text: str, wide: Callable[[int], bool], private: Callable[[int], bool], relative: bool) -> bool:
    """RFC 3986: split as its appendix B does, each part by its characters."""
    rest, _, fragment = text.partition("#")
    rest, _, query = rest.partition("?")
    letters = _UNRESERVED + _SUB + ":@"
    if not _characters(fragment, letters + "/?", wide) or not _characters(query, letters + "/?", lambda p: wide(p) or private(p)):
        return False
    scheme, colon, path = rest.partition(":")
    is_scheme = bool(scheme) and scheme[0] in string.ascii_letters and all(c in _ALNUM + "+-." for c in scheme)
    if not colon or not is_scheme:
        if not relative or ":" in rest.partition("/")[0]:
            return False
        path = rest
    if path.startswith("//"):
        host, slash, path = path[2:].partition("/")
        if not _authority(host, wide):
            return False
        path = slash + path
    return _characters(path, letters + "/", wide)


def uri_template(text: str) -> Verdict:
    """RFC 6570 with its erratum, by which an apostrophe is a literal."""
    while text:
        if text[0] == "{":
            inside, closed, text = text[1:].partition("}")
            operated = inside[:1] in tuple("+#./;?&=,!@|")
            if not closed or not all(map(_variable, inside[operated:].split(","))):
                return False
        else:
            at = text.find("{")
            literal, text = (text, "") if at < 0 else (text[:at], text[at:])
            allowed = "".join(chr(p) for p in range(0x21, 0x7F) if chr(p) not in "\"%<>\\^`{|}")
            if not _characters(literal, allowed, lambda p: _ucs(p) or _private(p)):
                return False
    return True


def _variable(text: str) -> bool:
    if text.endswith("*"):
        text = text[:-1]
    else:
        name, sign, count = text.partition(":")
        if sign and not (_digits(count, 4) and count[0] != "0"):
            return False
        text = name
    return all(part and _characters(part, _ALNUM + "_", _none) for part in text.split("."))


def json_pointer(text: str) -> Verdict:
    """RFC 6901."""
    return not text or (text[0] == "/" and all(part[:1] in ("0", "1") for part in text.split("~")[1:]))


def relative_json_pointer(text: str) -> Verdict:
    """draft-bhutton-relative-json-pointer; shifts of an index came with it."""
    number = text[: len(text) - len(text.lstrip(string.digits))]
    rest, shifted = text[len(number) :], False
    if rest[:1] in ("+", "-"):
        shift = rest[1 : len(rest) - len(rest[1:].lstrip(string.digits))]
        shifted, rest = True, rest[1 + len(shift) :]
        if not _digits(shift) or shift[0] == "0":
            return False
    if not _digits(number) or (number[0] == "0" and number != "0"):
        return False
    found = rest == "#" or json_pointer(rest)
    return None if shifted and found else found


JUDGES: dict[str, Callable[[str], Verdict]] = {
    "date": date,
    "time": time,
    "date-time": date_time,
    "duration": duration,
    "uuid": uuid,
    "ipv4": ipv4,
    "ip-address": ipv4,
    "ipv6": ipv6,
    "hostname": hostname,
    "host-name": hostname,
    "email": email,
    "idn-email": idn_email,
    "uri": lambda text: _reference(text, _none, _none, False),
    "uri-reference": lambda text: _reference(text, _none, _none, True),
    "iri": lambda text: _reference(text, _ucs, _private, False),
    "iri-reference": lambda text: _reference(text, _ucs, _private, True),
    "uri-template": uri_template,
    "json-pointer": json_pointer,
    "relative-json-pointer": relative_json_pointer,
}
"""Judges of all formats but `regex`, which is ECMAScript's own reader's to judge."""

EXAMPLES: dict[str, list[str]] = {
    "date": ["2024-02-29", "1900-02-28", "0000-12-31", "2023-04-30"],
    "time": ["23:59:60Z", "15:59:60-08:00", "08:30:06.283185Z", "00:00:00+23:59", "05:29:60+05:30", "12:00:00.5-00:00"],
    "date-time": ["1990-12-31T15:59:60-08:00", "2024-02-29t23:59:59.99z", "1998-12-31T23:59:60Z", "1963-06-19T08:30:06+01:00"],
    "duration": ["P4DT12H30M5S", "P1Y2M3D", "PT36H", "P4W", "PT1M", "P0D", "P1MT1H2M3S"],
    "uuid": ["2EB8AA08-aa98-11ea-B4Aa-73B441D16380"],
    "ipv4": ["192.168.0.1", "255.255.255.255", "0.0.0.0", "87.10.0.1"],
    "ipv6": ["::1", "::", "1:2:3:4:5:6:7:8", "::ffff:192.168.0.1", "1::d6:192.168.0.1", "fe80::a", "1:2:3:4:5:6:1.2.3.4", "1:2::7:8", "::3:4:5:6:7:8"],
    "hostname": ["www.example.com", "a-b.c1", "example", "1.2.3", "a" * 63 + ".b", "xn--4gbwdl.xn--wgbh1c", "a.b.c.d.e.f.g.h.i.j", "a.b.c." + "d" * 62],
    "email": ["joe.bloggs@example.com", "te~st@x", '"joe \\" b@c"@e.com', "j@[127.0.0.1]", "j@[IPv6:::1]", "j@[IPv6:1:2:3:4:5:6:1.2.3.4]", "a@[IPv6:1::8]"],
    "idn-email": ["실례@실례.테스트", "é@bücher.example", '"ü"@b', "a@ω1-я.x", "a@नेपाल.e\u0301", "j@[127.0.0.1]", "a@日本"],
    "uri": ["http://foo.bar/?baz=qux#quux", "ftp://u:p@h:21/a%20b;x", "urn:oasis:names", "ldap://[2001:db8::7]/c=GB?o?one", "a:", "http://[v1.x]:80", "tel:+1-816"],
    "uri-reference": ["/abc", "//foo.bar/?baz=qux#quux", "abc", "#frag", "", "./a:b", "a/b:c", "?q"],
    "iri": ["http://ƒøø.ßår/?∂éœ=πîx#πîüx", "a:é", "http://[::1]/é", "a:?\ue000"],
    "iri-reference": ["/âππ", "é/b:c", "//é@ü:1/x", "#ƒ"],
    "uri-template": ["http://example.com/dictionary/{term:1}/{term}", "{+a,b*}{/x.y:12}", "{?q%20}", "a%41b", "é{;e}", "it's"],
    "json-pointer": ["/foo/bar~0/baz~1/%a", "", "/", "/a//b", "/foo\nbar/~01"],
    "relative-json-pointer": ["1", "0/foo/bar", "2#", "120/a~1", "0-1/a", "3+2#"],
}  # fmt: skip
"""Texts of each format, and such as are left open."""
EXAMPLES |= {"host-name": EXAMPLES["hostname"], "ip-address": EXAMPLES["ipv4"]}


def undecided_here(name: str, text: str) -> bool:
    """Whether docs/limits.md leaves a text out of the format and out of its negation, beside what the judges leave open."""
    if name in ("time", "date-time"):
        return ":60" in text
    if name in ("hostname", "host-name"):
        labels = text.split(".")
        return len(text) > 253 or any(len(part) > 24 for part in labels[4:]) or len(labels) > 10 or (len(labels) > 3 and max(map(len, labels)) > 24)
    return False

