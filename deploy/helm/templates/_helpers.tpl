{{- define "posenc.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 53 | trimSuffix "-" -}}
{{- end -}}

{{/* Only the release's name, if this name already contains posenc. */}}
{{- define "posenc.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 53 | trimSuffix "-" -}}
{{- else if contains (include "posenc.name" .) .Release.Name -}}
{{- .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "posenc.name" .) | trunc 53 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "posenc.image" -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}

{{/* Labels that never change in the life of a release, because selectors are immutable. */}}
{{- define "posenc.selector" -}}
app.kubernetes.io/name: {{ include "posenc.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: server
{{- end -}}

{{- define "posenc.labels" -}}
{{ include "posenc.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "posenc.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "posenc.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* Makes address:port from (address, port), with brackets around IPv6. */}}
{{- define "posenc.address" -}}
{{- $address := index . 0 -}}
{{- if contains ":" $address }}[{{ $address }}]{{ else }}{{ $address }}{{ end }}:{{ index . 1 }}
{{- end -}}

{{/* Makes a probe from (values, service, path). It uses gRPC's health; with TLS it
     uses the admin port, because kubelet's gRPC probe does not speak TLS. */}}
{{- define "posenc.probe" -}}
{{- $values := (index . 0).Values -}}
{{- if $values.tls.secretName -}}
httpGet:
  port: admin
  path: /{{ index . 2 }}
{{- else -}}
grpc:
  port: {{ $values.port }}
  service: posenc.{{ index . 1 }}
{{- end -}}
{{- end -}}

{{- define "posenc.sharedMounts" -}}
- name: shared-memory
  mountPath: /shm
- name: socket
  mountPath: /run/posenc
{{- end -}}
