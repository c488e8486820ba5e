// Names of peers from sockets and from gRPC.

#include "server/transport/peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstring>

#include "gtest/gtest.h"

namespace posenc::server {
namespace {

Peer V6(const char* address, int port) {
  sockaddr_in6 v6 = {};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(static_cast<std::uint16_t>(port));
  EXPECT_EQ(inet_pton(AF_INET6, address, &v6.sin6_addr), 1);
  sockaddr_storage name = {};
  std::memcpy(&name, &v6, sizeof(v6));
  return *Peer::Of(name);
}

Peer V4(const char* address, int port) {
  sockaddr_in v4 = {};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(static_cast<std::uint16_t>(port));
  EXPECT_EQ(inet_pton(AF_INET, address, &v4.sin_addr), 1);
  sockaddr_storage name = {};
  std::memcpy(&name, &v4, sizeof(v4));
  return *Peer::Of(name);
}

TEST(PeerTest, GrpcsNamesAreTheSocketsPeers) {
  EXPECT_EQ(Peer::Parse("ipv4:127.0.0.1:40123"), V4("127.0.0.1", 40123));
  EXPECT_EQ(Peer::Parse("ipv6:%5B::1%5D:40123"), V6("::1", 40123));
  EXPECT_EQ(Peer::Parse("ipv6:[2001:db8::7]:1"), V6("2001:db8::7", 1));
  EXPECT_EQ(Peer::Parse("ipv6:%5Bfe80::1%25eth0%5D:9"), V6("fe80::1", 9));
  EXPECT_EQ(Peer::Parse("ipv4:10.0.0.7:80"), V6("::ffff:10.0.0.7", 80));
}

TEST(PeerTest, OtherNamesAreNoPeers) {
  for (const char* text :
       {"", "unix:", "unix:/run/s", "inproc", "ipv4:", "ipv4:1.2.3.4",
        "ipv4:1.2.3.4:", "ipv4:1.2.3.4:65536", "ipv4:1.2.3.4:-1",
        "ipv4:1.2.3:1", "ipv6:%5B::1:2:3:4:5:6:7:8:9%5D:1", "ipv6:%5D:1",
        "ipv4:11111111111111111111111111111111111111111111111111111111:1"}) {
    EXPECT_FALSE(Peer::Parse(text).has_value()) << text;
  }
}

TEST(PeerTest, AHostIsAnIPv4AddressOrHalfOfAnIPv6Address) {
  EXPECT_EQ(V4("10.0.0.7", 1).Host(), V4("10.0.0.7", 2).Host());
  EXPECT_NE(V4("10.0.0.7", 1).Host(), V4("10.0.0.8", 1).Host());
  EXPECT_EQ(V6("2001:db8::1", 1).Host(), V6("2001:db8::ffff", 1).Host());
  EXPECT_NE(V6("2001:db8::1", 1).Host(), V6("2001:db8:0:1::1", 1).Host());
}

}  // namespace
}  // namespace posenc::server
