package io.github.posenc;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import io.github.posenc.v1.AnalyzeRopeRequest;
import io.github.posenc.v1.AnalyzeRopeResponse;
import io.github.posenc.v1.DescriptionKind;
import io.github.posenc.v1.DiagnoseRopeRequest;
import io.github.posenc.v1.DiagnoseRopeResponse;
import io.github.posenc.v1.Finding;
import io.github.posenc.v1.ModelDescription;
import io.github.posenc.v1.ResolveRopeRequest;
import io.github.posenc.v1.RopeDifference;
import io.github.posenc.v1.RopeSource;
import io.github.posenc.v1.RopeSpec;
import io.github.posenc.v1.Severity;
import org.junit.jupiter.api.Test;

/** Differences between two encodings, and between the readers of one encoding. */
class DiagnosisTest extends WithServer {
  // One key under two names: transformers reads rope_type, mlx-lm reads type.
  private static final String TWO_TYPES =
      "{\"model_type\": \"llama\", \"hidden_size\": 512, \"num_attention_heads\": 8,"
          + " \"rope_theta\": 500000.0, \"max_position_embeddings\": 131072, \"rope_scaling\":"
          + " {\"rope_type\": \"yarn\", \"type\": \"linear\", \"factor\": 4.0,"
          + " \"original_max_position_embeddings\": 32768}}";

  private static ModelDescription config(String text) {
    return ModelDescription.newBuilder()
        .setKind(DescriptionKind.DESCRIPTION_KIND_CONFIG)
        .setText(text)
        .build();
  }

  @Test
  void aConfigurationThatReadersTakeDifferentlyIsDiagnosed() {
    DiagnoseRopeResponse answer = posenc.diagnoseRope(
        DiagnoseRopeRequest.newBuilder()
            .addInputs(config(TWO_TYPES))
            .addReaders("hf")
            .addReaders("mlx")
            .setLength(4096)
            .build());
    assertEquals(4096, answer.getLength());
    assertEquals(1, answer.getSummary().getError());
    Finding finding = answer.getFindings(0);
    assertEquals("config.type-conflict", finding.getId());
    assertEquals(Severity.SEVERITY_ERROR, finding.getSeverity());
    assertFalse(finding.getFix().isEmpty());
    assertEquals(1, finding.getReadersCount());
    assertEquals("mlx-lm", finding.getReaders(0).getName());
    // YaRN's attention factor (arXiv:2309.00071). A linear scaling has no attention factor.
    double factor = 0.1 * Math.log(4) + 1;
    assertEquals(1, finding.getReaders(0).getAmplitudeRatio() * factor, 1e-15);
  }

  @Test
  void aDiagnosisNamesWhatItCannotTake() {
    DiagnoseRopeRequest.Builder request = DiagnoseRopeRequest.newBuilder();
    assertRefused("inputs", () -> posenc.diagnoseRope(request.build()));
    ModelDescription kindless = ModelDescription.newBuilder().setText(TWO_TYPES).build();
    assertRefused(
        "inputs[0].kind",
        () -> posenc.diagnoseRope(request.clone().addInputs(kindless).build()));
    assertRefused(
        "readers[0]",
        () -> posenc.diagnoseRope(
            request.clone().addInputs(config(TWO_TYPES)).addReaders("nobody").build()));
    // Mistakes in a description do not make the call fail: the answer reports them.
    DiagnoseRopeResponse answer = posenc.diagnoseRope(
        request.clone().addInputs(config("{")).addInputs(config(TWO_TYPES)).build());
    assertFalse(answer.getInputs(0).getUnreadable().isEmpty());
    assertEquals("", answer.getInputs(1).getUnreadable());
  }

  private static RopeSource base(double theta) {
    return Sources.of(RopeSpec.newBuilder().setRotaryDim(8).setRopeTheta(theta));
  }

  // Returns the mean of cos(r |w - w'|) over all pairs i, with w = theta^(-i/4).
  private static double kept(int distance) {
    double sum = 0;
    for (int i = 0; i < 4; i++) {
      sum += Math.cos(distance * (Math.pow(1e4, -i / 4.0) - Math.pow(5e5, -i / 4.0)));
    }
    return sum / 4;
  }

  @Test
  void whatIsLeftOfAScoreUnderAnotherEncodingIsTheFormula() {
    AnalyzeRopeResponse analysis = posenc.analyzeRope(
        AnalyzeRopeRequest.newBuilder()
            .setRope(base(1e4))
            .setCompareWith(base(5e5))
            .setMaxDistance(40)
            .build());
    assertEquals(41, analysis.getKeptCount());
    int first = -1;
    for (int r = 40; r >= 0; r--) {
      assertEquals(kept(r), analysis.getKept(r), 1e-14, "at " + r);
      if (kept(r) < 0.9) first = r;
    }
    ResolveRopeRequest.Builder request =
        ResolveRopeRequest.newBuilder().setRope(base(1e4)).setLength(40);
    RopeDifference difference =
        posenc.resolveRope(request.clone().setCompareWith(base(5e5)).build()).getDifference();
    assertEquals(40, difference.getLength());
    assertEquals(kept(40), difference.getKeptAtLength(), 1e-14);
    assertEquals(first, difference.getFirstDistance());
    assertRefused("length", () -> posenc.resolveRope(request.build()));
  }
}
