"""Prints what scapy reads from RoCEv2 packets over IPv4: one line for each packet with the fields
of the BTH and the ICRC that scapy computes.

The packets come in hexadecimal on standard input, one on each line, or from a capture whose name is
the argument. For a capture the line ends with the ICRC that is in the packet."""

import sys

from scapy.compat import raw
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP
from scapy.utils import PcapReader

FIELDS = [
    "opcode",
    "solicited",
    "migreq",
    "padcount",
    "pkey",
    "fecn",
    "becn",
    "dqpn",
    "ackreq",
    "psn",
]


def fields_and_icrc(packet):
    bth = packet[BTH]
    bth.icrc = None
    return [*(getattr(bth, field) for field in FIELDS), raw(packet)[-4:].hex()]


if sys.argv[1:]:
    for frame in PcapReader(sys.argv[1]):
        found = raw(frame[IP])[-4:].hex()
        print(*fields_and_icrc(frame[IP]), found)
else:
    for line in sys.stdin:
        print(*fields_and_icrc(IP(bytes.fromhex(line))))
