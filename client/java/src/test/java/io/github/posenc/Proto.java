package io.github.posenc;
import io.grpc.*;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.github.posenc.v1.*;
import java.util.*;
import java.nio.file.*;
public final class Proto {
  public static void main(String[] a) throws Exception {
    NettyChannelBuilder b = (NettyChannelBuilder) Grpc.newChannelBuilder(a[0], InsecureChannelCredentials.create());
    b.maxInboundMessageSize(512<<20);
    if (Integer.getInteger("win",0)>0) b.flowControlWindow(Integer.getInteger("win"));
    ManagedChannel ch = b.build();
    int n = Integer.getInteger("mib",64)<<18;
    float[] q = new float[n]; Arrays.fill(q, 1f);
    Tensor t = Tensor.of(q, 1, n/4096, 32, 128);
    int calls = Integer.getInteger("calls", 10);
    double[] secs = new double[calls];
    for (int i=0;i<calls;i++) {
      long t0=System.nanoTime();
      Outgoing out = new Outgoing(ApplyRopeRequest.newBuilder().setLayout(io.github.posenc.v1.Layout.LAYOUT_BSHD).setPositions(io.github.posenc.v1.Positions.newBuilder().setStart(0)).setRope(RopeSource.newBuilder().setSpec(RopeSpec.newBuilder().setPairing(Pairing.PAIRING_HALF_SPLIT))).build()).tensor(14, t);
      Metadata h = new Metadata(); h.put(Metadata.Key.of("posenc-message-bytes", Metadata.ASCII_STRING_MARSHALLER), ""+out.bytes());
      Exchange.Outcome o = Exchange.run(ch, "posenc.v1.PositionalEncodingService/ApplyRope", MethodDescriptor.MethodType.UNARY, CallOptions.DEFAULT, h, 1, null, () -> out,
        in -> Incoming.parse(in, ApplyRopeResponse.getDefaultInstance(), List.of(14,15), Map.of(14, Incoming.Target.whole(t))));
      secs[i]=(System.nanoTime()-t0)/1e9;
      if (!o.status.isOk() || o.local!=null) { System.out.println(o.status+" "+o.local); if(o.local!=null) o.local.printStackTrace(); }
    }
    for (double s: secs) System.out.printf("%.0f ", s*1e3);
    for (String l : Files.readAllLines(Path.of("/proc/self/status"))) if (l.startsWith("VmHWM")||l.startsWith("VmRSS")) System.out.print(l+" ");
    System.out.println();
    ch.shutdownNow();
  }
}
