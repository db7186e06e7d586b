package aiperf

import "strings"

// headers are AIPerf's titles of metrics (metrics/types, 2026-10).
var headers = map[string]string{
	"benchmark_duration": "Benchmark Duration", "completed_request_count": "Completed Requests (Success + Error)",
	"context_overflow_count": "Context Overflow Count", "credit_to_start_latency": "Credit-to-Start Latency",
	"decode_duration": "Decode Duration", "e2e_output_token_throughput": "E2E Output Token Throughput",
	"effective_latency": "Effective Latency (CO-aware)", "error_request_count": "Error Request Count",
	"full_decode_duration": "Full Decode Duration", "good_request_fraction": "GoodRequestFraction", "full_response_inter_token_latency": "Full-Response Inter Token Latency",
	"full_response_output_token_throughput_per_user": "Full-Response Output Token Throughput Per User",
	"http_req_blocked": "HTTP Blocked", "http_req_chunks_received": "HTTP Chunks Received", "http_req_chunks_sent": "HTTP Chunks Sent",
	"http_req_connecting": "HTTP Connecting", "http_req_connection_overhead": "HTTP Connection Overhead",
	"http_req_connection_reused": "HTTP Connection Reused", "http_req_data_received": "HTTP Data Received", "http_req_data_sent": "HTTP Data Sent",
	"http_req_dns_lookup": "HTTP DNS Lookup", "http_req_duration": "HTTP Duration (excl. conn)", "http_req_receiving": "HTTP Receiving",
	"http_req_sending": "HTTP Sending", "http_req_total": "HTTP Total Time", "http_req_waiting": "HTTP Waiting (TTFB)",
	"input_sequence_length": "Input Sequence Length", "input_token_throughput": "Input Token Throughput",
	"osl_mismatch_count": "OSL Mismatch Count", "osl_mismatch_diff_pct": "OSL Mismatch Diff %",
	"overall_usage_prompt_cache_read_pct": "Overall Usage Prompt Cache Read %", "request_error_rate": "Request Error Rate",
	"time_to_first_token": "Time to First Token", "time_to_second_token": "Time to Second Token",
	"time_to_first_output_token": "Time to First Output Token",
	"total_isl":                  "Total Input Sequence Length", "total_osl": "Total Output Sequence Length",
}

// header is the title of a metric: one of the list, else its tag in words.
func header(tag string) string {
	if h, ok := headers[tag]; ok {
		return h
	}
	if of, ok := strings.CutPrefix(tag, "adj_"); ok {
		return header(of) + " (error-adjusted)"
	}
	words := strings.Split(tag, "_")
	for i, w := range words {
		if w != "" {
			words[i] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, " ")
}
