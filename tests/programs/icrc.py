"""What scapy says of RoCEv2 packets over IPv4: the fields of the BTH, and the ICRC that it computes itself, a line for each.
The packets come in hexadecimal, one a line, or in a file that is named, a capture; there the ICRC that was found follows."""

import sys

from scapy.compat import raw
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP
from scapy.utils import PcapReader

FIELDS = ["opcode", "solicited", "migreq", "padcount", "pkey", "fecn", "becn", "dqpn", "ackreq", "psn"]


def said(packet):
    bth = packet[BTH]
    bth.icrc = None
    return [*(getattr(bth, field) for field in FIELDS), raw(packet)[-4:].hex()]


if sys.argv[1:]:
    for frame in PcapReader(sys.argv[1]):
        found = raw(frame[IP])[-4:].hex()
        print(*said(frame[IP]), found)
else:
    for line in sys.stdin:
        print(*said(IP(bytes.fromhex(line))))
