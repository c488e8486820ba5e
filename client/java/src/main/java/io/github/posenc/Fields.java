package io.github.posenc;

import com.google.protobuf.Descriptors.EnumValueDescriptor;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Message;
import java.math.BigDecimal;
import java.util.Locale;
import java.util.Map;

/** Fills messages from maps: keys are the contract's field names, enum values may be short. */
final class Fields {
  private Fields() {}

  static void set(Message.Builder message, Map<?, ?> values, String path) {
    values.forEach((key, value) -> {
      String here = path + "." + key;
      FieldDescriptor field = message.getDescriptorForType().findFieldByName(String.valueOf(key));
      if (field == null) throw PosencException.invalid(here, "there is no such field");
      if (value == null) return;
      try {
        if (!field.isRepeated()) {
          message.setField(field, valueOf(field, message, value, here));
          return;
        }
        for (Object element : (Iterable<?>) value) {
          message.addRepeatedField(field, valueOf(field, message, element, here));
        }
      } catch (ArithmeticException | NumberFormatException | ClassCastException e) {
        String kind = (field.isRepeated() ? "a list of " : "") + field.getJavaType();
        throw PosencException.invalid(here, "is " + value + "; must be " + kind);
      }
    });
  }

  private static Object valueOf(
      FieldDescriptor field, Message.Builder message, Object value, String path) {
    switch (field.getJavaType()) {
      case INT:
        return new BigDecimal(((Number) value).toString()).intValueExact();
      case LONG:
        return new BigDecimal(((Number) value).toString()).longValueExact();
      case DOUBLE:
        return ((Number) value).doubleValue();
      case ENUM:
        return named(field, (String) value, path);
      case MESSAGE:
        Message.Builder inner = message.newBuilderForField(field);
        set(inner, (Map<?, ?>) value, path);
        return inner.build();
      default:
        return value; // strings and booleans; protobuf casts them
    }
  }

  // "half_split" is PAIRING_HALF_SPLIT: value 0 has the same prefix.
  private static EnumValueDescriptor named(FieldDescriptor field, String name, String path) {
    String prefix = field.getEnumType().getValues().get(0).getName().replace("UNSPECIFIED", "");
    String upper = name.toUpperCase(Locale.ROOT);
    EnumValueDescriptor value =
        field.getEnumType().findValueByName(upper.startsWith(prefix) ? upper : prefix + upper);
    if (value != null) return value;
    throw PosencException.invalid(
        path, "is \"" + name + "\"; must be one of " + field.getEnumType().getValues());
  }
}
