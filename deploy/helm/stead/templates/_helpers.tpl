{{- define "stead.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "stead.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "stead.labels" -}}
{{ include "stead.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "stead.secret" -}}
{{ .Values.token.existingSecret | default (printf "%s-token" (include "stead.name" .)) }}
{{- end }}

{{/* The names that clients may use; links are made for the first. */}}
{{- define "stead.names" -}}
{{- $name := include "stead.name" . }}
{{- $names := list "localhost" "127.0.0.1" $name (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s.svc" $name .Release.Namespace) }}
{{- with .Values.ingress.host }}{{ $names = prepend $names . }}{{ end }}
{{- join "," $names }}
{{- end }}
