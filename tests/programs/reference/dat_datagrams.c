/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "frame.h"
#include "datagrams.h"

static void use_example(void)
{
    DAT_IB_ADDR_HANDLE peer;
    DAT_RETURN status;

    status = new_datagram_ep(here.ia, here.pz, here.request, here.connect, &asking);
    if (DAT_GET_TYPE(status) == DAT_MODEL_NOT_SUPPORTED)
        return;
    OK(status);
    OK(new_datagram_ep(there.ia, there.pz, there.recv, there.connect, &answering));
    introduce("answer");
    EXPECT(peer_of(&resolved, &peer) == 0, "no address");
    EXPECT(peer.ah == to_answering.ah && peer.qpn == to_answering.qpn, "another address");
}
